"""All domains at once: their images in one random order, as in ROID's and SAR's mixed settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tta_bench.api import Domain, Scenario, SegmentImages


@dataclass
class Mixed(Scenario):
    """One segment with the images of every domain; a batch holds images of many domains."""

    summary = "the images of all domains in one random order"

    def schedule(self, domains: Sequence[Domain], rng: np.random.Generator) -> list[tuple[Domain, ...]]:
        return [tuple(domains)]

    def arrange(self, images: SegmentImages) -> np.ndarray:
        pairs = images.one_after_the_other()
        if len(images.domains) == 1:  # already in the order of `continual`
            return pairs
        return images.rng.permutation(pairs)
