"""Classes of different frequency: SAR's changing one, or a long tail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from tta_bench.api import CountOrZero, Domain, Ge, Interval, Positive, Scenario, SegmentImages, paired
from tta_bench.streams.sampling.imbalance_ratio import by_ratio, ratio_problem
from tta_bench.streams.sampling.long_tail import (
    delta_long_tail,
    gli_long_tail,
    mean_share,
    zipf_long_tail,
    zipf_problem,
)
from tta_bench.streams.sampling.no_draw import too_many
from tta_bench.streams.sampling.own_fields import check_own_fields
from tta_bench.streams.sampling.rotta import delta_order, rotta_order

ORDERS = {"rotta": rotta_order, "delta": delta_order}
# The fields that each sampler reads; `gamma` belongs to a correlation.
OWN: dict[str, tuple[str, ...]] = {
    "sar": ("ratio", "draws"),
    "delta": ("tail", "correlation"),
    "gli": ("imbalance", "ranks", "correlation"),
    "zipf": ("correlation",),
}


@dataclass
class Imbalanced(Scenario):
    """Images are drawn by class, with replacement (`sar`, `delta`, `zipf`) or without it (`gli`)."""

    summary = "class frequencies that change (SAR) or have a long tail (DELTA, GLI-TTA, Zipf)"
    uses_labels = True
    resamples = True

    sampler: Literal["sar", "delta", "gli", "zipf"] = "sar"  # how classes are drawn
    ratio: Annotated[float, Ge(1)] = 500_000  # sar: frequency of a phase's class, in units of the others'
    draws: CountOrZero = 0  # sar: images drawn for each domain; 0: twice as many as there are
    tail: Annotated[float, Interval(gt=0, le=1)] = 0.1  # delta: the last class's frequency, first = 1
    imbalance: Annotated[float, Ge(1)] = 10  # gli: the first class's frequency, last = 1
    ranks: Literal["fixed", "varying"] = "fixed"  # gli: by class number, or drawn for each domain
    correlation: Literal["none", "rotta", "delta"] = "none"  # order of long-tailed images, see `correlated`
    gamma: Positive = 0.1  # of that order

    def __post_init__(self) -> None:
        own, setting = OWN[self.sampler], f"the sampler {self.sampler}"
        if "correlation" in own:
            setting += f" with correlation {self.correlation}"
            own += () if self.correlation == "none" else ("gamma",)
        check_own_fields(self, setting, ("sampler", *own))

    def arrange(self, images: SegmentImages) -> np.ndarray:
        chosen = self._chosen(images.labels, images.rng)
        if self.correlation != "none":
            chosen = chosen[ORDERS[self.correlation](images.labels[chosen], self.gamma, images.rng)]
        return paired(0, chosen)

    def length(self, domains: Sequence[Domain], count: int) -> int:
        """Exact for `sar` and `zipf`; for the long tails, that of many classes."""
        if self.sampler == "sar":
            return self._drawn(count)
        return max(1, round(count * mean_share(self.imbalance))) if self.sampler == "gli" else count

    def problems(self, count: int, classes: int, domains: Sequence[Domain], batch_size: int) -> list[str]:
        text = None
        if self.draws and (problem := too_many(self.draws)):
            text = f"{problem} Lower `draws`."
        elif self.sampler == "sar":
            text = ratio_problem(self._drawn(count), classes)
        elif self.sampler == "zipf":
            text = zipf_problem(classes)
        return [text] if text else []

    def reduced(self, count: int) -> dict[str, object]:
        return {"draws": 2 * count} if self.draws > 2 * count else {}

    def _drawn(self, count: int) -> int:
        return self.draws or 2 * count

    def _chosen(self, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        if self.sampler == "sar":
            return by_ratio(labels, self.ratio, self._drawn(len(labels)), rng)
        if self.sampler == "delta":
            return delta_long_tail(labels, self.tail, rng)
        if self.sampler == "gli":
            return gli_long_tail(labels, self.imbalance, self.ranks == "varying", rng)
        return zipf_long_tail(labels, rng)
