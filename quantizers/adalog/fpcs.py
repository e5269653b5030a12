"""Fast progressive combining search (AdaLog): a coarse grid of pairs, then finer and finer scales.

A pair is a scale and a companion that stays fixed (a zero point, or a logarithm's base). Each group (row,
head, tensor) has its own search; all are scored at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

PAIRS = 128
STEPS = 5
Pair: TypeAlias = tuple[Tensor, Tensor]
Score: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # scales, companions [P, G] -> errors [P, G]


@dataclass(frozen=True)
class Refinement:
    """Keep the best `keep` pairs, try `spread` scales around each, shrink the distance, repeat."""

    keep: int
    spread: int
    shrink: float


UNIFORM = Refinement(keep=16, spread=8, shrink=7.5)
LOGARITHMIC = Refinement(keep=32, spread=4, shrink=3.5)


@dataclass(frozen=True)
class ScaleRange:
    """Scales from `inner` to `outer`, [G] each, at least `floor`."""

    inner: Tensor
    outer: Tensor
    floor: float

    def spaced(self, count: int) -> Tensor:
        """[count, G] evenly spaced scales."""
        steps = torch.linspace(0, 1, count, device=self.inner.device).unsqueeze(1)
        return (self.inner + steps * (self.outer - self.inner)).clamp_min(self.floor)

    def pitch(self, count: int) -> Tensor:
        """[G] distance between them."""
        return (self.outer - self.inner) / max(count - 1, 1)


def search_affine(scales: ScaleRange, zeros: Tensor, score: Score) -> Pair:
    """Best scale and zero point, [G] each."""
    count = PAIRS // len(zeros)
    pairs = combine(scales.spaced(count), zeros)
    return refine(pairs, scales.pitch(count), scales.floor, UNIFORM, score)


def refine(pairs: Pair, pitch: Tensor, floor: float, rule: Refinement, score: Score) -> Pair:
    """Best of `pairs` [P, G] after all refinement steps, [G] each."""
    scale, companion = best(pairs, score, rule.keep)
    offsets = torch.linspace(-0.5, 0.5, rule.spread, device=scale.device).view(-1, 1, 1)
    for step in range(STEPS):
        around = (scale + offsets * pitch).flatten(0, 1).clamp_min(floor)
        fixed = companion.repeat(rule.spread, 1)
        keep = rule.keep if step < STEPS - 1 else 1
        scale, companion = best((around, fixed), score, keep)
        pitch = pitch / rule.shrink
    return scale[0], companion[0]


def best(pairs: Pair, score: Score, keep: int) -> Pair:
    """The `keep` pairs of least error, by group: [keep, G] each."""
    scales, companions = pairs
    order = score(scales, companions).topk(keep, dim=0, largest=False).indices
    return scales.gather(0, order), companions.gather(0, order)


def combine(scales: Tensor, companions: Tensor) -> Pair:
    """All pairs of scales [S, G] and companions [Z], as [S·Z, G] each."""
    shape = (len(scales), len(companions), scales.shape[1])
    return (
        scales.unsqueeze(1).expand(shape).flatten(0, 1),
        companions.to(scales).view(1, -1, 1).expand(shape).flatten(0, 1),
    )


def zero_points(bits: int, most: int) -> Tensor:
    """Zero points around the middle code: at most `most`, and at most 16 to leave enough scales."""
    count = min(16, most)
    return torch.arange(count) + 2 ** (bits - 1) - count // 2
