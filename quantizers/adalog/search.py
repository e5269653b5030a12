"""AdaLog's searches, one for each kind of site: plain output error, alternating between operands."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tta_bench.api import Bits
from tta_bench_quantizers._calibration.objectives import (
    LayerObjective,
    MatmulObjective,
    per_head,
    sample_indices,
)
from tta_bench_quantizers._core.fake_quantization import affine
from tta_bench_quantizers._core.twin import GELU_DEPTH
from tta_bench_quantizers.adalog.fpcs import (
    LOGARITHMIC,
    Pair,
    ScaleRange,
    Score,
    best,
    combine,
    refine,
    search_affine,
    zero_points,
)
from tta_bench_quantizers.adalog.logarithmic import BASES, adalog
from tta_bench_quantizers.adalog.scores import (
    gram_score,
    input_score,
    left_score,
    right_score,
    row_score,
    value_score,
)

ACTIVATION_FLOOR = 1e-4
WEIGHT_FLOOR = 1e-8
TOP_BASES, LOG_SCALES = 8, 16
VALUES = 1 << 13  # sampled from a tensor or head where the error of the values themselves counts


@dataclass(frozen=True)
class AdaLogSearch:
    """Settings of a search; a score uses at most `rows` rows and as many outputs."""

    bits: Bits
    rounds: int
    rows: int


class InputScheme:
    """How a layer's input is quantised, and how its parameters are searched."""

    @abstractmethod
    def quantise(self, x: Tensor, scale: Tensor, companion: Tensor) -> Tensor:
        """x̂; parameters broadcast."""

    @abstractmethod
    def search(self, now: Pair | None, score: Score) -> Pair:
        """The best pair, [1] each."""


@dataclass(frozen=True)
class AffineInput(InputScheme):
    """One scale and zero point."""

    scales: ScaleRange
    bits: int

    def quantise(self, x: Tensor, scale: Tensor, companion: Tensor) -> Tensor:
        return affine(x, scale, companion, self.bits)

    def search(self, now: Pair | None, score: Score) -> Pair:
        return search_affine(self.scales, zero_points(self.bits, 2**self.bits), score)


@dataclass(frozen=True)
class ShiftedLogInput(InputScheme):
    """One scale and base for x plus the depth of GELU."""

    scales: ScaleRange
    bits: int

    def quantise(self, x: Tensor, scale: Tensor, companion: Tensor) -> Tensor:
        return adalog(x + GELU_DEPTH, scale, companion, self.bits).sub_(GELU_DEPTH)

    def search(self, now: Pair | None, score: Score) -> Pair:
        scale = self.scales.outer if now is None else now[0]
        _, bases = best(combine(scale.unsqueeze(0), torch.tensor(BASES)), score, TOP_BASES)
        pairs = combine(self.scales.spaced(LOG_SCALES), bases.flatten())
        pitch = self.scales.pitch(LOG_SCALES)
        return refine(pairs, pitch, self.scales.floor, LOGARITHMIC, score)


def search_layer(search: AdaLogSearch, scheme: InputScheme, objective: LayerObjective) -> tuple[Pair, Pair]:
    """Pairs of the weight rows (scale, zero) and of the input, searched alternately."""
    part = affordable(objective, search.rows)
    few = objective.subset_rows(search.rows // 2)  # one quantiser for all rows needs less data
    values = few.x.flatten()[sample_indices(few.x.numel(), VALUES)].unsqueeze(1)
    a = scheme.search(None, value_score(values, scheme.quantise))
    for _ in range(search.rounds):
        before = a
        w = search_weight(search, replace(part, x=scheme.quantise(part.x, *a)))
        w_hat = affine(objective.weight, *(t.unsqueeze(1) for t in w), search.bits.weight)
        narrow = replace(few, weight=w_hat).subset_outputs(search.rows // 2)
        a = scheme.search(a, input_score(narrow, scheme.quantise))
        if converged(before, a):
            break
    return w, a


def affordable(objective: LayerObjective, rows: int) -> LayerObjective:
    """The objective with all rows if the Gram form makes them cheap, else with a sample."""
    return objective if objective.weight.shape[1] <= rows else objective.subset_rows(rows)


def converged(before: Pair, after: Pair) -> bool:
    """Whether a round changed nothing, so that no later round would."""
    return torch.equal(before[0], after[0]) and torch.equal(before[1], after[1])


def search_weight(search: AdaLogSearch, objective: LayerObjective) -> Pair:
    """Scale and zero point of every weight row, for an input that is already quantised."""
    bits, weight = search.bits.weight, objective.weight
    scales = percentile_range(weight.t(), weight.amin(1), weight.amax(1), bits, WEIGHT_FLOOR)
    gram = weight.shape[1] <= len(objective.x)
    score = gram_score(objective, bits) if gram else row_score(objective, bits)
    return search_affine(scales, zero_points(bits, 2 ** (bits - 1)), score)


def search_scores(search: AdaLogSearch, product: MatmulObjective) -> tuple[Pair, Pair]:
    """Pairs of q and of kᵀ, by head."""
    bits = search.bits.activation
    zeros = zero_points(bits, 2 ** (bits - 1))
    ranges = [head_range(t, bits) for t in (product.a, product.b)]

    def quantise(x: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
        return affine(x, scale, zero, bits)

    b = search_affine(ranges[1], zeros, value_score(head_columns(product.b), quantise))
    for _ in range(search.rounds):
        before, b_hat = b, quantise(product.b, *map(per_head, b))
        a = search_affine(ranges[0], zeros, left_score(product, b_hat, quantise))
        a_hat = quantise(product.a, *map(per_head, a))
        b = search_affine(ranges[1], zeros, right_score(product, a_hat, quantise))
        if converged(before, b):
            break
    return a, b


def search_values(search: AdaLogSearch, product: MatmulObjective) -> tuple[Tensor, Pair]:
    """The base of the attention, [1], and the pairs of v, by head."""
    bits = search.bits.activation
    zeros, scales = zero_points(bits, 2 ** (bits - 1)), head_range(product.b, bits)
    bases = combine(torch.ones(1, 1), torch.tensor(BASES))

    def quantise(x: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
        return affine(x, scale, zero, bits)

    def logarithm(x: Tensor, scale: Tensor, q: Tensor) -> Tensor:
        return adalog(x, scale, q, bits)

    b = search_affine(scales, zeros, value_score(head_columns(product.b), quantise))
    for _ in range(search.rounds):
        before, b_hat = b, quantise(product.b, *map(per_head, b))
        one, q = (t[0] for t in best(bases, left_score(product, b_hat, logarithm), 1))
        a_hat = logarithm(product.a, one, q)
        b = search_affine(scales, zeros, right_score(product, a_hat, quantise))
        if converged(before, b):
            break
    return q, b


def percentile_range(columns: Tensor, low: Tensor, high: Tensor, bits: int, floor: float) -> ScaleRange:
    """Scales from the middle 80 % of each column [n, G] to its whole range low…high."""
    inner = columns.quantile(0.9, dim=0) - columns.quantile(0.1, dim=0)
    steps = 2**bits - 1
    return ScaleRange(inner / steps, (high - low) / steps, floor)


def positive_range(values: Tensor, high: Tensor) -> ScaleRange:
    """Scales of shifted GELU outputs: from the 90th percentile of the positive ones to their peak."""
    inner = values[values > 0].quantile(0.9).view(1)
    return ScaleRange(inner + GELU_DEPTH, high.view(1) + GELU_DEPTH, ACTIVATION_FLOOR)


def head_range(operand: Tensor, bits: int) -> ScaleRange:
    """Scales of an operand [B, H, r, d], by head."""
    low, high = operand.amin((0, 2, 3)), operand.amax((0, 2, 3))
    return percentile_range(head_columns(operand), low, high, bits, ACTIVATION_FLOOR)


def head_columns(operand: Tensor) -> Tensor:
    """A sample [n, H] of the values of each head."""
    columns = operand.transpose(0, 1).flatten(1).t()
    return columns[sample_indices(len(columns), VALUES)]
