"""Stream scenarios: which domains come when, and in which order their images arrive."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tta_bench.api.data import Domain
from tta_bench.api.plugin import Plugin


@dataclass(frozen=True)
class SegmentImages:
    """What a scenario arranges: the images of a segment, their labels, and generators for random choices.

    A segment is a part of a round: its batches hold no images of other segments (unless `straddle` joins the
    segments of a round).
    """

    domains: tuple[Domain, ...]
    orders: tuple[np.ndarray, ...]  # for each domain, the indices of its images as `stream.order` orders them
    labels: np.ndarray  # the label of each image, by index; the same in all domains
    rng: np.random.Generator  # other numbers in every segment; the same with `order: aligned`
    stream_rng: np.random.Generator  # the same numbers in every segment of a round

    def one_after_the_other(self) -> np.ndarray:
        """All images as pairs (number of the domain in `domains`, index of the image)."""
        return np.concatenate([paired(number, order) for number, order in enumerate(self.orders)])


def paired(number: int, index: np.ndarray) -> np.ndarray:
    """The images at `index` of one domain as pairs (number of the domain, index of the image)."""
    return np.stack([np.full(len(index), number, np.int64), np.asarray(index, np.int64)], axis=1)


class Scenario(Plugin):
    """Plans the segments of a round, then arranges the images of each.

    The plan is made before any image or label is read: keys, planning and records depend on it. Only
    `arrange` sees labels. All random choices come from the generators that the harness passes: they depend on
    the seed, the parameters, the segment and, with `order: reshuffled`, on the round.

    As it is, this class is the scenario `continual`: one segment for each domain, in the order of the file.
    """

    summary: ClassVar[str] = ""
    uses_labels: bool = False  # the order of the images depends on their labels; records say so
    resamples: bool = False  # images may repeat or be missing; otherwise each comes exactly once

    def schedule(self, domains: Sequence[Domain], rng: np.random.Generator) -> list[tuple[Domain, ...]]:
        """The domains of every segment of a round; every round has the same number of segments.

        `domains` come in the order of the file or of `stream.domain_order`. A domain may come in several
        segments, and a scenario may add severities.
        """
        return [(domain,) for domain in domains]

    def arrange(self, images: SegmentImages) -> np.ndarray:
        """The images of a segment in order of arrival: pairs (number of the domain, index), shape [M, 2].

        Every domain of the segment must have at least one image.
        """
        return images.one_after_the_other()

    def length(self, domains: Sequence[Domain], count: int) -> int:
        """How many images a segment has, as far as is known before labels are read; for estimates."""
        return len(domains) * count

    def problems(self, count: int, classes: int, domains: Sequence[Domain], batch_size: int) -> list[str]:
        """Why there is no such stream of `count` images per domain: problem and remedy, a sentence each."""
        return []

    def reduced(self, count: int) -> dict[str, Any]:
        """Values of parameters that `--micro` changes, because it has only `count` images per domain."""
        return {}

    @property
    def text(self) -> str:
        """Its name and parameters, from which generators are seeded."""
        return f"{type(self).__name__}{json.dumps(dataclasses.asdict(self), sort_keys=True)}"  # type: ignore[call-overload]
