"""A stream scenario. A few images of each domain in turn are a starting point for your own."""

from collections.abc import Sequence

import numpy as np

from tta_bench.api import Count, Domain, Scenario, SegmentImages, dataclass, paired


@dataclass
class PluginClass(Scenario):
    """Comes to each domain for `visit` images, in a new random order of domains each time."""

    visit: Count = 8  # images of a domain before the next one

    summary = "a few images of each domain in turn"

    def schedule(self, domains: Sequence[Domain], rng: np.random.Generator) -> list[tuple[Domain, ...]]:
        """One segment with all domains, so that their images can alternate."""
        return [tuple(domains)]

    def arrange(self, images: SegmentImages) -> np.ndarray:
        """The images in order of arrival: pairs (number of the domain, index). Draw all chance from `rng`."""
        pairs = [paired(number, order) for number, order in enumerate(images.orders)]
        found = []
        for start in range(0, max(map(len, pairs)), self.visit):
            for number in images.rng.permutation(len(pairs)):
                found.append(pairs[number][start : start + self.visit])
        return np.concatenate(found)
