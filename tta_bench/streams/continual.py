"""The scenario of most papers: one domain after the other."""

from __future__ import annotations

from dataclasses import dataclass

from tta_bench.api import Scenario


@dataclass
class Continual(Scenario):
    """One segment for each domain; the base class does all of it."""

    summary = "one domain after the other"
