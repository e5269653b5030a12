"""Prior correction: predictions weighted by the classes of their batch (a part of ROID; Marsden et al.)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from tta_bench.api import Choice, Method, spaces


@dataclass
class PriorCorrection(Method):
    """Weight each class by its smoothed mean probability in the batch.

    logits: multiply the logits, as in ROID's released code. probabilities: multiply the probabilities.
    """

    space: Literal["logits", "probabilities"] = "logits"  # what is corrected

    consumes = "features"
    memory = "batch"
    summary = "predictions weighted by the batch's class frequencies"
    search_space = spaces(space=Choice("logits", "probabilities"))

    def step(self, z: Tensor) -> Tensor:
        logits = self.model.head(z)
        finite = logits.isfinite().all(1)
        if not finite.all():
            self.skip("logits were not finite")
        prior = smoothed_prior(logits[finite].softmax(1))
        return logits * prior if self.space == "logits" else logits + prior.log()

    def reset(self) -> None:
        pass


def smoothed_prior(p: Tensor) -> Tensor:
    """π̃ = (π + s)/(1 + s·C) with the mean probability π and s = max(1/B, 1/C)/max_c π_c; it sums to 1."""
    images, classes = p.shape
    prior = p.mean(0)
    smoothing = max(1 / max(images, 1), 1 / classes) / prior.max()
    return (prior + smoothing) / (1 + smoothing * classes)
