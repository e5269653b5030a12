"""One corruption fades while the next one grows; a mixture of two is between the domains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tta_bench.api import Count, Domain, Scenario, SegmentImages
from tta_bench.corruptions.composed import Part, composed_name
from tta_bench.streams.schedules.crossfade import Crossing, crossfade


@dataclass
class Crossfade(Scenario):
    """From each corruption to the next in `steps`, at severities between whole numbers.

    At t from 0 to 1, images get the first corruption at severity L·(1 − t), then the second at L·t, where
    L is `stream.severity`.
    """

    summary = "from each corruption to the next, through mixtures of both"
    resamples = True

    steps: Count = 20  # from one corruption to the next
    images: Count = 1_000  # drawn for each point; all if there are fewer

    def schedule(self, domains: Sequence[Domain], rng: np.random.Generator) -> list[tuple[Domain, ...]]:
        level = domains[0].severity
        return [(_domain(point, domains),) for point in crossfade(len(domains), level, self.steps)]

    def arrange(self, images: SegmentImages) -> np.ndarray:
        return images.one_after_the_other()[: self.images]

    def length(self, domains: Sequence[Domain], count: int) -> int:
        return min(self.images, count)

    def problems(self, count: int, classes: int, domains: Sequence[Domain], batch_size: int) -> list[str]:
        if steady := [domain.corruption for domain in domains if domain.severity == 0]:
            return [
                f"{steady[0]} has no severity that could grow or fade. Remove it from stream.corruptions."
            ]
        if len(domains) < 2:
            return ["there is one corruption, and two are needed. Add some to stream.corruptions."]
        return []

    def reduced(self, count: int) -> dict[str, object]:
        return {"steps": min(self.steps, 2)}


def _domain(point: Crossing, domains: Sequence[Domain]) -> Domain:
    """The domain of a point; the plain one where a corruption is alone at its full severity."""
    first, second = domains[point.first], domains[point.second]
    if point.second_severity == 0:
        return first
    if point.first_severity == 0:
        return second
    parts = (Part(first.corruption, point.first_severity), Part(second.corruption, point.second_severity))
    return Domain(composed_name(parts), first.severity)
