"""Errors of AdaLog's candidate pairs: [P, G] for pairs [P, G]."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from tta_bench_quantizers._calibration.grid_search import (
    CHUNK,
    input_errors,
    left_errors,
    on_left,
    on_right,
    right_errors,
    row_errors,
)
from tta_bench_quantizers._calibration.objectives import LayerObjective, MatmulObjective
from tta_bench_quantizers._core.fake_quantization import affine
from tta_bench_quantizers.adalog.fpcs import Score

Quantise: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]  # x, scale, companion


def value_score(values: Tensor, quantise: Quantise) -> Score:
    """Squared error of the values [n, G] themselves."""

    def score(s: Tensor, c: Tensor) -> Tensor:
        return quantise(values, s.unsqueeze(1), c.unsqueeze(1)).sub_(values).square_().sum(1)

    return _chunked(score, values.numel())


def input_score(objective: LayerObjective, quantise: Quantise) -> Score:
    """Output error of a layer, by its input's quantiser (one group)."""

    def score(s: Tensor, c: Tensor) -> Tensor:
        inputs = quantise(objective.x.unsqueeze(0), s.unsqueeze(2), c.unsqueeze(2))
        return input_errors(inputs, objective.weight, objective.target).unsqueeze(1)

    return _chunked(score, max(objective.x.numel(), objective.target.numel()))


def row_score(objective: LayerObjective, bits: int) -> Score:
    """Output error of a layer, by its weight rows' quantisers."""

    def score(s: Tensor, z: Tensor) -> Tensor:
        weights = affine(objective.weight, s.unsqueeze(2), z.unsqueeze(2), bits)
        return row_errors(objective.x, weights, objective.target)

    return _chunked(score, max(objective.weight.numel(), objective.target.numel()))


def gram_score(objective: LayerObjective, bits: int) -> Score:
    """The same for any number of rows at the cost of C rows: ŵᵀGŵ − 2ŵᵀh, G = XᵀX, h = Xᵀo (fp64)."""
    x, target = objective.x.double(), objective.target.double()
    gram, cross = x.t() @ x, (x.t() @ target).t()

    def score(s: Tensor, z: Tensor) -> Tensor:
        weights = affine(objective.weight, s.unsqueeze(2), z.unsqueeze(2), bits).double()
        return (weights @ gram).sub_(cross, alpha=2).mul_(weights).sum(2)

    return _chunked(score, 2 * objective.weight.numel())


def left_score(product: MatmulObjective, b_hat: Tensor, quantise: Quantise) -> Score:
    """Output error of a product, by its left operand's quantisers (by head, or one for all)."""

    def score(s: Tensor, c: Tensor) -> Tensor:
        lefts = quantise(product.a.unsqueeze(2), on_left(s), on_left(c))
        errors = left_errors(lefts, b_hat, product.target)
        return errors if s.shape[1] > 1 else errors.sum(1, keepdim=True)

    return _chunked(score, max(product.a.numel(), product.target.numel()))


def right_score(product: MatmulObjective, a_hat: Tensor, quantise: Quantise) -> Score:
    """Output error of a product, by its right operand's quantisers, by head."""

    def score(s: Tensor, c: Tensor) -> Tensor:
        rights = quantise(product.b.unsqueeze(3), on_right(s), on_right(c))
        return right_errors(a_hat, rights, product.target)

    return _chunked(score, max(product.b.numel(), product.target.numel()))


def _chunked(score: Score, elements: int) -> Score:
    """The score, evaluated for a few candidates at a time."""
    count = max(1, CHUNK // elements)

    def in_chunks(s: Tensor, c: Tensor) -> Tensor:
        parts = zip(s.split(count), c.split(count), strict=True)
        return torch.cat([score(*part) for part in parts])

    return in_chunks
