"""PTQ4ViT's search: scales on a grid, by gradient-weighted output error, operands in turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tta_bench.api import Bits
from tta_bench_quantizers.candidates import (
    input_errors,
    least,
    left_errors,
    on_left,
    on_right,
    right_errors,
    row_errors,
)
from tta_bench_quantizers.fake import per_row, symmetric
from tta_bench_quantizers.site_data import SiteData
from tta_bench_quantizers.twin import TwinMode, twin_gelu, twin_softmax

ALPHA, BETA = 0.01, 1.2
SPLITS = 20  # post-softmax: split at 2^0 … 2^−19


@dataclass(frozen=True)
class Search:
    """What a search needs besides its data."""

    bits: Bits
    candidates: int
    rounds: int
    twin_mode: TwinMode

    def grid(self, peak: Tensor, bits: int) -> Tensor:
        """Candidate scales [n, G]: c·max|t|/(2^(b−1) − ½), c from α up to, but without, β."""
        steps = torch.arange(self.candidates, device=peak.device) / self.candidates
        base = peak.flatten().clamp_min(1e-12) / (2 ** (bits - 1) - 0.5)
        return (ALPHA + steps * (BETA - ALPHA))[:, None] * base

    def start(self, peak: Tensor, bits: int) -> Tensor:
        """The scale [G] that just holds the peak."""
        return peak.flatten().clamp_min(1e-12) / (2 ** (bits - 1) - 0.5)


def search_layer(
    search: Search, data: SiteData, layer: nn.Module, granules: int, gelu: bool
) -> dict[str, Tensor]:
    """Scales of a linear layer: weights, then its input, in turn until neither moves."""
    weight, x, target, importance = layer_problem(data, layer)
    w_bits, a_bits = search.bits.weight, search.bits.activation
    w_grid = search.grid(weight.view(granules, -1).abs().amax(1), w_bits)
    a_grid = search.grid(data.peaks()[0], a_bits)
    w, a = w_grid[0], search.start(data.peaks()[0], a_bits)

    quantise = twin_gelu if gelu else symmetric
    for _ in range(search.rounds):
        before = (w, a)
        x_hat = quantise(x, a, a_bits)
        w = search_weight(w_grid, w_bits, weight, x_hat, target, importance)
        w_hat = symmetric(weight, per_row(w, weight), w_bits)
        a = search_input(a_grid, a_bits, x, quantise, w_hat, target, importance)
        if torch.equal(before[0], w) and torch.equal(before[1], a):
            break
    return {"w_scale": w, "a_scale": a.squeeze(0)}


def search_conv(search: Search, data: SiteData, layer: nn.Module) -> dict[str, Tensor]:
    """Scales of a convolution's weight, one a channel; its input stays float."""
    weight, x, target, importance = layer_problem(data, layer)
    grid = search.grid(weight.abs().amax(1), search.bits.weight)
    return {"w_scale": search_weight(grid, search.bits.weight, weight, x, target, importance)}


def search_weight(
    grid: Tensor, bits: int, weight: Tensor, x: Tensor, target: Tensor, importance: Tensor
) -> Tensor:
    """Best weight scales [G] for a fixed (quantised) input."""
    rows = len(weight) // grid.shape[1]

    def score(s: Tensor) -> Tensor:
        scale = s.repeat_interleave(rows, dim=1).unsqueeze(2)
        errors = row_errors(x, symmetric(weight, scale, bits), target, importance)
        return errors.view(len(s), -1, rows).sum(2)

    return least(grid, score, max(target.numel(), weight.numel()))


def search_input(
    grid: Tensor,
    bits: int,
    x: Tensor,
    quantise: Callable[[Tensor, Tensor, int], Tensor],
    w_hat: Tensor,
    target: Tensor,
    importance: Tensor,
) -> Tensor:
    """Best input scale [1] for a fixed (quantised) weight."""

    def score(s: Tensor) -> Tensor:
        inputs = quantise(x.unsqueeze(0), s.unsqueeze(2), bits)
        return input_errors(inputs, w_hat, target, importance).unsqueeze(1)

    return least(grid, score, max(target.numel(), x.numel()))


def search_scores(search: Search, data: SiteData) -> dict[str, Tensor]:
    """Scales of q and kᵀ by head."""
    a, b, target, importance = product_problem(data)
    bits, (a_peak, b_peak) = search.bits.activation, data.peaks()
    a_grid, b_grid = search.grid(a_peak, bits), search.grid(b_peak, bits)
    s_a, s_b = a_grid[0], search.start(b_peak, bits)
    for _ in range(search.rounds):
        before = (s_a, s_b)
        s_a = _search_left(a_grid, a, symmetric(b, by_head(s_b), bits), target, importance, bits)
        s_b = _search_right(b_grid, symmetric(a, by_head(s_a), bits), b, target, importance, bits)
        if torch.equal(before[0], s_a) and torch.equal(before[1], s_b):
            break
    return {"a_scale": by_head(s_a), "b_scale": by_head(s_b)}


def search_values(search: Search, data: SiteData) -> dict[str, Tensor]:
    """The split of the attention (v left float, as released), then the scales of v by head.

    The split does not depend on v's scales, so one round is all rounds.
    """
    a, b, target, importance = product_problem(data)
    bits = search.bits.activation

    def score(splits: Tensor) -> Tensor:
        lefts = twin_softmax(a.unsqueeze(2), splits.view(1, 1, -1, 1, 1), bits, search.twin_mode)
        return left_errors(lefts, b, target, importance).sum(1, keepdim=True)

    splits = 2.0 ** -torch.arange(SPLITS, device=a.device, dtype=a.dtype).unsqueeze(1)
    split = least(splits, score, max(a.numel(), target.numel())).squeeze(0)
    a_hat = twin_softmax(a, split, bits, search.twin_mode)
    grid = search.grid(data.peaks()[1], bits)
    s_b = _search_right(grid, a_hat, b, target, importance, bits)
    return {"split": split, "b_scale": by_head(s_b)}


def _search_left(
    grid: Tensor, a: Tensor, b_hat: Tensor, target: Tensor, importance: Tensor, bits: int
) -> Tensor:
    def score(s: Tensor) -> Tensor:
        lefts = symmetric(a.unsqueeze(2), on_left(s), bits)
        return left_errors(lefts, b_hat, target, importance)

    return least(grid, score, max(a.numel(), target.numel()))


def _search_right(
    grid: Tensor, a_hat: Tensor, b: Tensor, target: Tensor, importance: Tensor, bits: int
) -> Tensor:
    def score(s: Tensor) -> Tensor:
        rights = symmetric(b.unsqueeze(3), on_right(s), bits)
        return right_errors(a_hat, rights, target, importance)

    return least(grid, score, max(b.numel(), target.numel()))


def layer_problem(data: SiteData, layer: nn.Module) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weight [O, C], input rows [T, C], target without bias [T, O], importance [T, O] or [T, 1]."""
    weight = layer.get_parameter("weight").detach().flatten(1)
    target = data.out.flatten(0, -2)
    if layer.bias is not None:
        target = target - layer.get_parameter("bias").detach()
    return weight, data.a.flatten(0, -2), target, data.importance().flatten(0, -2)


def product_problem(data: SiteData) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Left, right, target and importance of a product."""
    assert data.b is not None
    return data.a.contiguous(), data.b.contiguous(), data.out, data.importance()


def by_head(scale: Tensor) -> Tensor:
    """[H] as [1, H, 1, 1]: it broadcasts over images and over any number of tokens."""
    return scale.view(1, -1, 1, 1)
