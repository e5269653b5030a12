"""Scenarios on few images, and some that are not built in: the example, one with visits, one by label.

`install` makes them known to one test; they are not installed for all tests.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tta_bench.api import Domain, Scenario, SegmentImages, dataclass
from tta_bench.plugins import registry

STREAM: dict[str, Any] = {
    "corruptions": ["gaussian_noise", "contrast"],
    "severity": 2,
    "rounds": 2,
    "batch_size": 8,
    "limit": 20,
}
# What a scenario needs on so few images, besides what it says itself.
NEEDS: dict[str, dict[str, Any]] = {"markov": {"max_state": 20}}
# Streams that combine several settings. Each has more than one reason to differ however it is run.
COMBINED: dict[str, dict[str, Any]] = {
    "borders": {"straddle": True, "domain_order": "per-round", "adapt_every": 3, "scenario": "gradual"},
    "rounds": {"domain_order": "per-round", "rounds": 3, "reset": {"every": 4}},
    "window": {"batch_size": 1, "window": 4, "reset": {"every": 7}, "scenario": "correlated", "limit": 12},
    "mixed": {
        "scenario": "mixed",
        "order": "reshuffled",
        "adapt_every": 2,
        "reset": {"every": 5},
        "batch_size": 4,
    },
}
EXAMPLE = Path(__file__).parents[2] / "examples" / "tta-bench-interleaved" / "tta_bench_interleaved.py"
NAMES = ("interleaved", "there-and-back", "by-label")
ENTRY_POINTS = """[tta_bench.streams]
interleaved = tta_bench_interleaved:Interleaved
there-and-back = outside_scenarios:ThereAndBack
by-label = outside_scenarios:ByLabel
no-order = outside_scenarios:NoOrder
"""


@dataclass
class ThereAndBack(Scenario):
    """All domains, then all but the last in reverse: a round comes to them twice."""

    def schedule(self, domains: Sequence[Domain], rng: np.random.Generator) -> list[tuple[Domain, ...]]:
        return [(domain,) for domain in (*domains, *reversed(domains[:-1]))]


@dataclass
class ByLabel(Scenario):
    """The images of each domain in the order of their labels."""

    least: int = 1
    uses_labels = True

    def arrange(self, images: SegmentImages) -> np.ndarray:
        pairs = images.one_after_the_other()
        return pairs[np.argsort(images.labels[pairs[:, 1]], kind="stable")]

    def problems(self, count: int, classes: int, domains: Sequence[Domain], batch_size: int) -> list[str]:
        few = f"{count} images are fewer than {self.least}. Raise stream.limit."
        return [few] if count < self.least else []


@dataclass
class NoOrder(Scenario):
    """One segment of all domains, which cannot be arranged."""

    def schedule(self, domains: Sequence[Domain], rng: np.random.Generator) -> list[tuple[Domain, ...]]:
        return [tuple(domains)]

    def arrange(self, images: SegmentImages) -> np.ndarray:
        raise ValueError("there is no order")


def small(name: str) -> dict[str, Any]:
    """A registered scenario, with parameters for the few images of `STREAM`."""
    reduced = registry.load("streams", name)().reduced(STREAM["limit"])
    return {"use": name, **reduced, **NEEDS.get(name, {})}


def install(folder: Path) -> Path:
    """A folder that holds these scenarios as an installed package, `outside 1.0`."""
    shutil.copy(EXAMPLE, folder)
    shutil.copy(__file__, folder / "outside_scenarios.py")
    facts = folder / "outside-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder
