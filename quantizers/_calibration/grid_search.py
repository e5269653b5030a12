"""Grid search over candidate scales by the output error of a site.

Candidates are computed in one large matrix product, side by side along its free axis. Errors are
Σ (importance ⊙ (target − output))², one for each candidate and group.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

CHUNK = 1 << 18  # elements of one batched output, which fit in a core's cache


def best_candidates(grid: Tensor, score: Callable[[Tensor], Tensor], elements: int) -> Tensor:
    """[G] out of candidates [P, G], the best of each group; `elements` is one candidate's output size."""
    errors = candidate_errors(grid, score, elements)
    return grid.gather(0, errors.argmin(0, keepdim=True)).squeeze(0)


def candidate_errors(grid: Tensor, score: Callable[[Tensor], Tensor], elements: int) -> Tensor:
    """Errors [P, G] of candidates, evaluated in chunks."""
    return torch.cat([score(part) for part in grid.split(max(1, CHUNK // elements))])


def row_errors(x: Tensor, weights: Tensor, target: Tensor, importance: Tensor | None = None) -> Tensor:
    """[P, O] from candidate weights [P, O, C] and rows x [T, C]."""
    out = (x @ weights.flatten(0, 1).t()).view(len(x), *weights.shape[:2])
    return _squared_(out, target, importance, 1).sum(0)


def input_errors(inputs: Tensor, weight: Tensor, target: Tensor, importance: Tensor | None = None) -> Tensor:
    """[P] from candidate rows [P, T, C] and a weight [O, C]."""
    out = (inputs.flatten(0, 1) @ weight.t()).view(*inputs.shape[:2], len(weight))
    return _squared_(out, target, importance, 0).sum((1, 2))


def left_errors(lefts: Tensor, b: Tensor, target: Tensor, importance: Tensor | None = None) -> Tensor:
    """[P, H] from candidate left operands [B, H, P, r, d] and b [B, H, d, n]."""
    out = (lefts.flatten(2, 3) @ b).view(*lefts.shape[:4], b.shape[-1])
    return _squared_(out, target, importance, 2).sum((0, 3, 4)).t()


def right_errors(a: Tensor, rights: Tensor, target: Tensor, importance: Tensor | None = None) -> Tensor:
    """[P, H] from candidate right operands [B, H, d, P, n] and a [B, H, r, d]."""
    out = (a @ rights.flatten(3, 4)).view(*a.shape[:3], *rights.shape[3:])
    return _squared_(out, target, importance, 3).sum((0, 2, 4)).t()


def on_left(values: Tensor) -> Tensor:
    """[P, H] parameters in the layout of `left_errors`' operands."""
    return values.t()[None, :, :, None, None]


def on_right(values: Tensor) -> Tensor:
    """[P, H] parameters in the layout of `right_errors`' operands."""
    return values.t()[None, :, None, :, None]


def _squared_(out: Tensor, target: Tensor, importance: Tensor | None, axis: int) -> Tensor:
    """(importance ⊙ (out − target))²; candidates lie along `axis` of out."""
    out.sub_(target.unsqueeze(axis))
    if importance is not None:
        out.mul_(importance.unsqueeze(axis))
    return out.square_()
