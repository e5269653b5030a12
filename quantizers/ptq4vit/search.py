"""PTQ4ViT's search: scales on a grid by gradient-weighted output error, alternating between operands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor, nn

from tta_bench.api import Bits
from tta_bench_quantizers._calibration.grid_search import (
    best_candidates,
    input_errors,
    left_errors,
    on_left,
    on_right,
    right_errors,
    row_errors,
)
from tta_bench_quantizers._calibration.objectives import LayerObjective, MatmulObjective, per_head
from tta_bench_quantizers._calibration.site_data import SiteData
from tta_bench_quantizers._core.fake_quantization import per_row, symmetric
from tta_bench_quantizers._core.twin import TwinMode, twin_gelu, twin_softmax

Fields: TypeAlias = dict[str, Tensor]
Quantise: TypeAlias = Callable[[Tensor, Tensor, int], Tensor]  # x, scale, bits

ALPHA, BETA = 0.01, 1.2
SPLITS = 20  # post-softmax: split at 2^0 … 2^−19


@dataclass(frozen=True)
class Ptq4VitSearch:
    """Settings of a search."""

    bits: Bits
    candidates: int
    rounds: int
    twin_mode: TwinMode

    def grid(self, peak: Tensor, bits: int) -> Tensor:
        """Candidate scales [n, G]: c·max|t|/(2^(b−1) − ½), c from α up to, but without, β."""
        steps = torch.arange(self.candidates, device=peak.device) / self.candidates
        return (ALPHA + steps * (BETA - ALPHA))[:, None] * self.start(peak, bits)

    def start(self, peak: Tensor, bits: int) -> Tensor:
        """The smallest scale [G] that does not clip the peak."""
        return peak.flatten().clamp_min(1e-12) / (2 ** (bits - 1) - 0.5)


def search_layer(search: Ptq4VitSearch, data: SiteData, layer: nn.Module, groups: int, gelu: bool) -> Fields:
    """Scales of a linear layer: weights and input alternately, until neither changes."""
    objective, bits = LayerObjective.of(data, layer), search.bits
    w_grid = search.grid(objective.weight.view(groups, -1).abs().amax(1), bits.weight)
    a_grid = search.grid(data.peaks()[0], bits.activation)
    w, a = w_grid[0], search.start(data.peaks()[0], bits.activation)
    quantise = twin_gelu if gelu else symmetric
    for _ in range(search.rounds):
        before = (w, a)
        x_hat = quantise(objective.x, a, bits.activation)
        w = search_weight(w_grid, replace(objective, x=x_hat), bits.weight)
        w_hat = symmetric(objective.weight, per_row(w, objective.weight), bits.weight)
        a = search_input(a_grid, replace(objective, weight=w_hat), quantise, bits.activation)
        if torch.equal(before[0], w) and torch.equal(before[1], a):
            break
    return {"w_scale": w, "a_scale": a.squeeze(0)}


def search_conv(search: Ptq4VitSearch, data: SiteData, layer: nn.Module) -> Fields:
    """Scales of a convolution's weight, one per channel; its input stays in float."""
    objective, bits = LayerObjective.of(data, layer), search.bits.weight
    grid = search.grid(objective.weight.abs().amax(1), bits)
    return {"w_scale": search_weight(grid, objective, bits)}


def search_weight(grid: Tensor, objective: LayerObjective, bits: int) -> Tensor:
    """Best weight scales [G], for an input that is already quantised."""
    weight, x, target, importance = objective.weight, objective.x, objective.target, objective.importance
    rows = len(weight) // grid.shape[1]

    def score(s: Tensor) -> Tensor:
        scale = s.repeat_interleave(rows, dim=1).unsqueeze(2)
        errors = row_errors(x, symmetric(weight, scale, bits), target, importance)
        return errors.view(len(s), -1, rows).sum(2)

    return best_candidates(grid, score, max(target.numel(), weight.numel()))


def search_input(grid: Tensor, objective: LayerObjective, quantise: Quantise, bits: int) -> Tensor:
    """Best input scale [1], for a weight that is already quantised."""
    weight, x, target, importance = objective.weight, objective.x, objective.target, objective.importance

    def score(s: Tensor) -> Tensor:
        inputs = quantise(x.unsqueeze(0), s.unsqueeze(2), bits)
        return input_errors(inputs, weight, target, importance).unsqueeze(1)

    return best_candidates(grid, score, max(target.numel(), x.numel()))


def search_scores(search: Ptq4VitSearch, data: SiteData) -> Fields:
    """Scales of q and kᵀ by head."""
    product, bits, (a_peak, b_peak) = MatmulObjective.of(data), search.bits.activation, data.peaks()
    a_grid, b_grid = search.grid(a_peak, bits), search.grid(b_peak, bits)
    a, b = a_grid[0], search.start(b_peak, bits)
    for _ in range(search.rounds):
        before = (a, b)
        a = _search_left(a_grid, replace(product, b=symmetric(product.b, per_head(b), bits)), bits)
        b = _search_right(b_grid, replace(product, a=symmetric(product.a, per_head(a), bits)), bits)
        if torch.equal(before[0], a) and torch.equal(before[1], b):
            break
    return {"a_scale": per_head(a), "b_scale": per_head(b)}


def search_values(search: Ptq4VitSearch, data: SiteData) -> Fields:
    """The split of the attention (v stays in float, as released), then the scales of v by head.

    The split does not depend on v's scales, so one round is enough.
    """
    product, bits = MatmulObjective.of(data), search.bits.activation
    a, b, target, importance = product.a, product.b, product.target, product.importance

    def score(splits: Tensor) -> Tensor:
        lefts = twin_softmax(a.unsqueeze(2), on_left(splits), bits, search.twin_mode)
        return left_errors(lefts, b, target, importance).sum(1, keepdim=True)

    splits = 2.0 ** -torch.arange(SPLITS, dtype=a.dtype).unsqueeze(1)
    split = best_candidates(splits, score, max(a.numel(), target.numel())).squeeze(0)
    a_hat = twin_softmax(a, split, bits, search.twin_mode)
    scale = _search_right(search.grid(data.peaks()[1], bits), replace(product, a=a_hat), bits)
    return {"split": split, "b_scale": per_head(scale)}


def _search_left(grid: Tensor, product: MatmulObjective, bits: int) -> Tensor:
    a, b, target, importance = product.a, product.b, product.target, product.importance

    def score(s: Tensor) -> Tensor:
        return left_errors(symmetric(a.unsqueeze(2), on_left(s), bits), b, target, importance)

    return best_candidates(grid, score, max(a.numel(), target.numel()))


def _search_right(grid: Tensor, product: MatmulObjective, bits: int) -> Tensor:
    a, b, target, importance = product.a, product.b, product.target, product.importance

    def score(s: Tensor) -> Tensor:
        return right_errors(a, symmetric(b.unsqueeze(3), on_right(s), bits), target, importance)

    return best_candidates(grid, score, max(b.numel(), target.numel()))
