"""A stream that changes its domain after every few images, as a camera that is switched between rooms."""

from collections.abc import Sequence

import numpy as np

from tta_bench.api import Count, Domain, Scenario, SegmentImages, dataclass, paired


@dataclass
class Interleaved(Scenario):
    """`run` images of each domain in turn, from the first domain to the last, again and again."""

    run: Count = 4
    summary = "a few images of each domain in turn"

    def schedule(self, domains: Sequence[Domain], rng: np.random.Generator) -> list[tuple[Domain, ...]]:
        return [tuple(domains)]  # one segment with all domains

    def arrange(self, images: SegmentImages) -> np.ndarray:
        pairs = [paired(number, order) for number, order in enumerate(images.orders)]
        starts = range(0, len(images.labels), self.run)
        return np.concatenate([each[i : i + self.run] for i in starts for each in pairs])
