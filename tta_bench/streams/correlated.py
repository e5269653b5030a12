"""Labels that are correlated in time: images of a class tend to come together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tta_bench.api import Domain, Positive, Scenario, SegmentImages
from tta_bench.streams.sampling.by_class import sorted_by_class
from tta_bench.streams.sampling.note import note_order, note_problem
from tta_bench.streams.sampling.own_fields import check_own_fields
from tta_bench.streams.sampling.rotta import delta_order, rotta_order

MICRO_NOTE = 500  # images of the embedded data, which has 10 classes


@dataclass
class Correlated(Scenario):
    """Every image once, ordered by its label; one segment for each domain, or one for all (`mixed`)."""

    summary = "images of a class come together: sorted, or by the Dirichlet samplers of NOTE, RoTTA and DELTA"
    uses_labels = True

    sampler: Literal["sorted", "note", "rotta", "delta"] = "rotta"  # how images are ordered
    gamma: Positive = 0.1  # of the Dirichlet distribution (δ in NOTE): the lower, the more correlated
    mixed: bool = False  # all domains in one segment, ordered by class together

    def __post_init__(self) -> None:
        of_draw = () if self.sampler == "sorted" else ("gamma",)
        check_own_fields(self, f"the sampler {self.sampler}", ("sampler", *of_draw, "mixed"))

    def schedule(self, domains: Sequence[Domain], rng: np.random.Generator) -> list[tuple[Domain, ...]]:
        return [tuple(domains)] if self.mixed else super().schedule(domains, rng)

    def arrange(self, images: SegmentImages) -> np.ndarray:
        order = self._order(np.tile(images.labels, len(images.domains)), images.rng)
        return np.stack(np.divmod(order, len(images.labels)), axis=1)

    def problems(self, count: int, classes: int, domains: Sequence[Domain], batch_size: int) -> list[str]:
        together = count * len(domains) if self.mixed else count
        text = note_problem(together, classes) if self.sampler == "note" else None
        return [text] if text else []

    def reduced(self, count: int) -> dict[str, object]:
        # NOTE's sampler needs 10 images for each class, and hardly any draw succeeds with few more.
        return {"sampler": "rotta"} if self.sampler == "note" and count < MICRO_NOTE else {}

    def _order(self, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        if self.sampler == "sorted":
            return sorted_by_class(labels, rng)
        if self.sampler == "note":
            return note_order(labels, self.gamma, rng)
        return (rotta_order if self.sampler == "rotta" else delta_order)(labels, self.gamma, rng)
