"""Severities that rise and fall, one corruption after the other, as in CoTTA's gradual setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np

from tta_bench.api import Domain, Interval, Scenario
from tta_bench.streams.schedules.severities import rise_and_fall

Severity = Annotated[int, Interval(ge=1, le=5)]


@dataclass
class Gradual(Scenario):
    """Each corruption at severities 1, 2, … `stream.severity` and down again; all images come at each."""

    summary = "each corruption at rising, then falling severities"

    severities: list[Severity] = field(default_factory=list)  # of each corruption; empty: up and down again
    first_from_the_top: bool = (
        False  # the first corruption starts at its highest severity (CoTTA: 131 segments)
    )

    def __post_init__(self) -> None:
        if self.severities and self.first_from_the_top:
            raise ValueError("severities: `first_from_the_top` belongs to rising severities. Remove one.")

    def schedule(self, domains: Sequence[Domain], rng: np.random.Generator) -> list[tuple[Domain, ...]]:
        found: list[tuple[Domain, ...]] = []
        for number, domain in enumerate(domains):
            path = self._severities(domain, first=number == 0)
            found += [(Domain(domain.corruption, severity),) for severity in path]
        return found

    def _severities(self, domain: Domain, first: bool) -> Sequence[int]:
        if domain.severity == 0:  # clean images
            return (0,)
        return self.severities or rise_and_fall(domain.severity, self.first_from_the_top and first)
