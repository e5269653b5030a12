"""The objective and the activation shifting of FOA, which ZOA, FOZO and PACE use, too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tta_bench_methods._shared.gradient import entropy

REFERENCE_BATCH = 64  # batch size that FOA's λ was chosen for
SPREAD_OF_ONE = "the standard deviation of one image is not defined"  # so neither is the objective
HISTORY_RATE = 0.1  # weight of the new batch in the running mean of features


@dataclass(frozen=True)
class SourceStatistics:
    """Mean and standard deviation of every layer feature over clean images."""

    means: list[Tensor]
    stds: list[Tensor]

    def gaps(self, layers: Sequence[Tensor]) -> list[Tensor]:
        """(σ − σ_src)² + (μ − μ_src)² of a batch, per layer and channel, in float64."""
        return [
            (_spread(z) - std).square() + (z.mean(0) - mean).square()
            for z, mean, std in zip(map(torch.Tensor.double, layers), self.means, self.stds, strict=True)
        ]


@dataclass(frozen=True)
class Candidate:
    """What one prompt, or one set of parameters, makes of one batch."""

    fitness: float
    logits: Tensor
    feature_mean: Tensor


def sortable(fitness: float) -> float:
    """The fitness, or infinity in place of NaN: a candidate that is not finite never wins."""
    return fitness if math.isfinite(fitness) else math.inf


def _spread(z: Tensor) -> Tensor:
    """Unbiased standard deviation; NaN for a single image, without torch's warning."""
    return z.std(0) if len(z) > 1 else torch.full_like(z[0], torch.nan)


def objective(logits: Tensor, gaps: Sequence[Tensor], lam: float, form: Literal["mean", "sum"]) -> Tensor:
    """Entropy plus λ times the gaps.

    mean: averaged over images, channels and then layers (ZOA; FOA on feature maps).
    sum: Σ_i H_i + λ·(B/64)·Σ gaps (FOA on tokens), which ranks candidates as the mean form does with
    λ·(number of channels of all layers)/64 in place of λ.

    In float64: methods divide differences of it by small steps, which would amplify the rounding of float32
    sums, and so the order in which a library adds.
    """
    logits = logits.double()
    if form == "sum":
        weight = lam * len(logits) / REFERENCE_BATCH
        return entropy(logits).sum() + weight * torch.cat(list(gaps)).sum()
    return entropy(logits).mean() + lam * torch.stack([gap.mean() for gap in gaps]).mean()


def feature_mean(z: Tensor) -> Tensor:
    """Mean of the features of a batch, in float64 for the reason that `objective` states."""
    return z.double().mean(0)


class ActivationShift:
    """Moves features by the difference of the source mean and a running mean (FOA, γ = 1)."""

    def __init__(self, target: Tensor, rate: float = HISTORY_RATE) -> None:
        self.target, self.rate = target, rate
        self.mean: Tensor | None = None  # replaced, never changed in place

    def offset(self) -> Tensor | None:
        """d = μ_src − m, or None before the first batch."""
        return None if self.mean is None else self.target - self.mean

    def update_(self, batch_mean: Tensor) -> bool:
        """Update the running mean unless the batch is not finite; return whether it was updated."""
        if not batch_mean.isfinite().all():
            return False
        old = self.mean
        self.mean = batch_mean if old is None else old.lerp(batch_mean, self.rate)
        return True


def shifted(z: Tensor, offset: Tensor | None) -> Tensor:
    """Features with the shift applied."""
    return z if offset is None else (z + offset).to(z.dtype)


def shift_target(statistics: SourceStatistics, broadcast_scalar: bool) -> Tensor:
    """The last layer's source mean, or only its last number, as in the released code for feature maps."""
    last = statistics.means[-1]
    return last[-1:] if broadcast_scalar else last
