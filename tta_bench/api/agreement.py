"""An integer engine against the simulation that defines its numbers, on the calibration images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version

import torch
from torch import Tensor

from tta_bench.api.model import Model
from tta_bench.api.quantizer import Calibration, Quantizer

LEAST_AGREEMENT = 0.95  # share of images whose predicted class must be that of the simulation
SITES_NAMED = 3  # in a message
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


@dataclass(frozen=True)
class CheckedAgreement(Agreement):
    """An agreement, the sites in integers among those that have to be, and the version of the engine."""

    integer_sites: int
    expected_sites: int
    version: str | None  # None: the engine is part of PyTorch


def checked_agreement(
    quantizer: Quantizer, engine: Model, floating: Model, calibration: Calibration, images: Tensor
) -> CheckedAgreement | None:
    """The agreement of an engine with its simulation, or None without an engine.

    It is an error if the engine leaves sites in float, or if the agreement is too small. `floating` is the
    model before quantisation; it is quantised here.
    """
    scheme = quantizer.simulated()
    if scheme is None:
        return None
    expected, integer = quantizer.expected_integer_sites(floating), quantizer.integer_sites(engine)
    _refuse_float_sites(expected, integer)
    found = agreement(engine, scheme.install(floating, calibration), images)
    if not found.share >= LEAST_AGREEMENT:
        raise RuntimeError(
            f"the integer engine {found}. At least {LEAST_AGREEMENT:.0%} must agree: on this machine its "
            "numbers are not those of the scheme. Use engine: simulated, or another engine."
        )
    package = quantizer.engine_package
    used = version(package) if package else None
    sites = {"integer_sites": len(integer), "expected_sites": len(expected)}
    return CheckedAgreement(**asdict(found), **sites, version=used)


def _refuse_float_sites(expected: Sequence[str], integer: Sequence[str]) -> None:
    """Raise if a site is in float: the figures of the cell would be those of another arithmetic."""
    missing = [site for site in expected if site not in integer]
    if not missing:
        return
    named, more = ", ".join(missing[:SITES_NAMED]), len(missing) - SITES_NAMED
    raise RuntimeError(
        f"the integer engine computes {len(expected) - len(missing)} of {len(expected)} sites in integers; "
        f"in float are {named}{f' and {more} more' if more > 0 else ''}. Another version of the engine may "
        "compute them. Use engine: simulated, or another engine."
    )


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
