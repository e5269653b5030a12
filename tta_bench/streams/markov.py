"""UniTTA's stream: a Markov chain over domains and classes, which contains many other settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from tta_bench.api import CountOrZero, Domain, Ge, Interval, Scenario, SegmentImages
from tta_bench.streams.sampling.by_class import class_counts
from tta_bench.streams.sampling.long_tail import mean_share
from tta_bench.streams.sampling.markov import Factor, markov_images, markov_states, shares
from tta_bench.streams.sampling.no_draw import NoDraw, too_many

LONGEST = 10  # times all images: a chain that needs more on average until every domain has come is refused
Stay = Annotated[float, Interval(ge=0, le=1)] | Literal["iid"]


@dataclass
class Markov(Scenario):
    """One segment in which domain and class of each image depend on those of the image before.

    A domain (a class) stays with probability `stay` and otherwise changes to any other. The first of them is
    `imbalance` times as frequent as the last. Images of a domain and class repeat when all have come.
    """

    summary = "a Markov chain over domains and classes (UniTTA)"
    uses_labels = True
    resamples = True

    domain_stay: Stay = 0.85  # iid: 1 / number of domains; 1: one domain after the other
    domain_imbalance: Annotated[float, Ge(1)] = 1.0  # frequency of the first domain; of the last: 1
    class_stay: Stay = 0.95  # iid: 1 / number of classes; 1: sorted by class
    class_imbalance: Annotated[float, Ge(1)] = 1.0  # frequency of the first class; of the last: 1
    max_state: CountOrZero = 0  # images of the most frequent domain and class; 0: those of the largest class

    def schedule(self, domains: Sequence[Domain], rng: np.random.Generator) -> list[tuple[Domain, ...]]:
        return [tuple(domains)]

    def arrange(self, images: SegmentImages) -> np.ndarray:
        counts = class_counts(images.labels)
        domains = _factor(len(images.domains), self.domain_stay, self.domain_imbalance)
        classes = _factor(len(counts), self.class_stay, self.class_imbalance)
        most = self.max_state or int(counts.max())
        of_domain, of_class = markov_states(domains, classes, most, images.rng)
        if len(np.unique(of_domain)) < domains.states:
            raise NoDraw(
                f"markov: the stream ended after {len(of_domain)} images, before every domain had come. "
                "Raise max_state, or lower domain_stay or domain_imbalance."
            )
        return np.stack([of_domain, markov_images(images.labels, of_domain, of_class, images.rng)], axis=1)

    def problems(self, count: int, classes: int, domains: Sequence[Domain], batch_size: int) -> list[str]:
        states = max(1, min(classes, count))
        of_domain = _factor(len(domains), self.domain_stay, self.domain_imbalance)
        of_class = _factor(states, self.class_stay, self.class_imbalance)
        most = self.max_state or -(-count // states)  # some class has at least so many images
        if self.max_state and (problem := too_many(len(domains) * states * most)):
            return [f"{problem} Lower max_state."]
        if not of_domain.valid and round(most * float(of_domain.frequencies[-1])) == 0:
            return [
                f"the last of {len(domains)} domains has a share of {most} / {self.domain_imbalance:g} "
                "images of each class, which is rounded to none. Raise max_state, or lower domain_imbalance."
            ]
        # Shares of classes end the stream; without them it goes on until every domain has come.
        longest = (
            LONGEST * len(domains) * count if of_class.valid else shares(of_domain, of_class, most).sum()
        )
        if of_domain.valid and of_domain.cover_images > longest:
            return [
                f"it takes {of_domain.cover_images:.0f} images on average until all {len(domains)} domains "
                f"have come, and this stream may have {longest}. Lower domain_stay, or use more images."
            ]
        return []

    def length(self, domains: Sequence[Domain], count: int) -> int:
        """With as many images of each class and `max_state` 0; the stream may end earlier."""
        of_domain = _factor(len(domains), self.domain_stay, self.domain_imbalance)
        share = float(of_domain.frequencies.mean()) * mean_share(self.class_imbalance)
        return max(1, round(len(domains) * count * share))

    def reduced(self, count: int) -> dict[str, object]:
        return {"max_state": 0}


def _factor(states: int, stay: float | str, imbalance: float) -> Factor:
    return Factor(states, 1 / states if isinstance(stay, str) else stay, imbalance)
