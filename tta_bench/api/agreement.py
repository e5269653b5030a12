"""An integer engine against the simulation that defines its numbers, on the calibration images."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tta_bench.api.model import Model
from tta_bench.api.quantizer import Calibration, Quantizer

LEAST_AGREEMENT = 0.95  # share of images whose predicted class must be that of the simulation
BATCH = 16


@dataclass(frozen=True)
class Agreement:
    """Images compared, those with the same predicted class, and the largest difference of any logit."""

    images: int
    same_top1: int
    largest_difference: float

    @property
    def share(self) -> float:
        """The share of images with the same predicted class."""
        return self.same_top1 / self.images

    def __str__(self) -> str:
        return (
            f"predicts the class of the simulation on {self.same_top1} of {self.images} calibration images; "
            f"logits differ by up to {self.largest_difference:.3g}"
        )


def checked_agreement(
    quantizer: Quantizer, engine: Model, floating: Model, calibration: Calibration, images: Tensor
) -> Agreement | None:
    """The agreement of an engine with its simulation, or None without an engine; an error if it is too small.

    `floating` is the model before quantisation; it is quantised here.
    """
    scheme = quantizer.simulated()
    if scheme is None:
        return None
    found = agreement(engine, scheme.install(floating, calibration), images)
    if not found.share >= LEAST_AGREEMENT:
        raise RuntimeError(
            f"the integer engine {found}. At least {LEAST_AGREEMENT:.0%} must agree: on this machine its "
            "numbers are not those of the scheme. Use engine: simulated, or another engine."
        )
    return found


@torch.no_grad()
def agreement(engine: Model, simulation: Model, images: Tensor) -> Agreement:
    """Both networks on the same images."""
    same, largest = 0, 0.0
    for batch in images.split(BATCH):
        mine, theirs = engine(batch), simulation(batch)
        same += int((mine.argmax(1) == theirs.argmax(1)).sum())
        gap = (mine - theirs).abs().max().nan_to_num(torch.inf)
        largest = max(largest, float(gap))
    return Agreement(len(images), same, largest)
