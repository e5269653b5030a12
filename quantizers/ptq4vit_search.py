"""PTQ4ViT's search: scales on a grid, by gradient-weighted output error, operands in turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

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
from tta_bench_quantizers.problems import LayerProblem, Product, by_head
from tta_bench_quantizers.site_data import SiteData
from tta_bench_quantizers.twin import TwinMode, twin_gelu, twin_softmax

Fields: TypeAlias = dict[str, Tensor]
Quantise: TypeAlias = Callable[[Tensor, Tensor, int], Tensor]  # x, scale, bits

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
        return (ALPHA + steps * (BETA - ALPHA))[:, None] * self.start(peak, bits)

    def start(self, peak: Tensor, bits: int) -> Tensor:
        """The scale [G] that just holds the peak."""
        return peak.flatten().clamp_min(1e-12) / (2 ** (bits - 1) - 0.5)


def search_layer(search: Search, data: SiteData, layer: nn.Module, granules: int, gelu: bool) -> Fields:
    """Scales of a linear layer: weights, then its input, in turn until neither moves."""
    problem, bits = LayerProblem.of(data, layer), search.bits
    w_grid = search.grid(problem.weight.view(granules, -1).abs().amax(1), bits.weight)
    a_grid = search.grid(data.peaks()[0], bits.activation)
    w, a = w_grid[0], search.start(data.peaks()[0], bits.activation)
    quantise = twin_gelu if gelu else symmetric
    for _ in range(search.rounds):
        before = (w, a)
        x_hat = quantise(problem.x, a, bits.activation)
        w = search_weight(w_grid, replace(problem, x=x_hat), bits.weight)
        w_hat = symmetric(problem.weight, per_row(w, problem.weight), bits.weight)
        a = search_input(a_grid, replace(problem, weight=w_hat), quantise, bits.activation)
        if torch.equal(before[0], w) and torch.equal(before[1], a):
            break
    return {"w_scale": w, "a_scale": a.squeeze(0)}


def search_conv(search: Search, data: SiteData, layer: nn.Module) -> Fields:
    """Scales of a convolution's weight, one a channel; its input stays float."""
    problem, bits = LayerProblem.of(data, layer), search.bits.weight
    grid = search.grid(problem.weight.abs().amax(1), bits)
    return {"w_scale": search_weight(grid, problem, bits)}


def search_weight(grid: Tensor, problem: LayerProblem, bits: int) -> Tensor:
    """Best weight scales [G], for an input that is already quantised."""
    weight, x, target, importance = problem.weight, problem.x, problem.target, problem.importance
    rows = len(weight) // grid.shape[1]

    def score(s: Tensor) -> Tensor:
        scale = s.repeat_interleave(rows, dim=1).unsqueeze(2)
        errors = row_errors(x, symmetric(weight, scale, bits), target, importance)
        return errors.view(len(s), -1, rows).sum(2)

    return least(grid, score, max(target.numel(), weight.numel()))


def search_input(grid: Tensor, problem: LayerProblem, quantise: Quantise, bits: int) -> Tensor:
    """Best input scale [1], for a weight that is already quantised."""
    weight, x, target, importance = problem.weight, problem.x, problem.target, problem.importance

    def score(s: Tensor) -> Tensor:
        inputs = quantise(x.unsqueeze(0), s.unsqueeze(2), bits)
        return input_errors(inputs, weight, target, importance).unsqueeze(1)

    return least(grid, score, max(target.numel(), x.numel()))


def search_scores(search: Search, data: SiteData) -> Fields:
    """Scales of q and kᵀ by head."""
    product, bits, (a_peak, b_peak) = Product.of(data), search.bits.activation, data.peaks()
    a_grid, b_grid = search.grid(a_peak, bits), search.grid(b_peak, bits)
    a, b = a_grid[0], search.start(b_peak, bits)
    for _ in range(search.rounds):
        before = (a, b)
        a = _search_left(a_grid, replace(product, b=symmetric(product.b, by_head(b), bits)), bits)
        b = _search_right(b_grid, replace(product, a=symmetric(product.a, by_head(a), bits)), bits)
        if torch.equal(before[0], a) and torch.equal(before[1], b):
            break
    return {"a_scale": by_head(a), "b_scale": by_head(b)}


def search_values(search: Search, data: SiteData) -> Fields:
    """The split of the attention (v left float, as released), then the scales of v by head.

    The split does not depend on v's scales, so one round is all rounds.
    """
    product, bits = Product.of(data), search.bits.activation
    a, b, target, importance = product.a, product.b, product.target, product.importance

    def score(splits: Tensor) -> Tensor:
        lefts = twin_softmax(a.unsqueeze(2), on_left(splits), bits, search.twin_mode)
        return left_errors(lefts, b, target, importance).sum(1, keepdim=True)

    splits = 2.0 ** -torch.arange(SPLITS, dtype=a.dtype).unsqueeze(1)
    split = least(splits, score, max(a.numel(), target.numel())).squeeze(0)
    a_hat = twin_softmax(a, split, bits, search.twin_mode)
    scale = _search_right(search.grid(data.peaks()[1], bits), replace(product, a=a_hat), bits)
    return {"split": split, "b_scale": by_head(scale)}


def _search_left(grid: Tensor, product: Product, bits: int) -> Tensor:
    a, b, target, importance = product.a, product.b, product.target, product.importance

    def score(s: Tensor) -> Tensor:
        return left_errors(symmetric(a.unsqueeze(2), on_left(s), bits), b, target, importance)

    return least(grid, score, max(a.numel(), target.numel()))


def _search_right(grid: Tensor, product: Product, bits: int) -> Tensor:
    a, b, target, importance = product.a, product.b, product.target, product.importance

    def score(s: Tensor) -> Tensor:
        return right_errors(a, symmetric(b.unsqueeze(3), on_right(s), bits), target, importance)

    return least(grid, score, max(b.numel(), target.numel()))
