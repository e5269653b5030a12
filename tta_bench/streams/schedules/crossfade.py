"""Severities of two corruptions while the second replaces the first (after CCC, Press et al., NeurIPS 2023).

The path is a straight line. CCC chooses each path so that a network's accuracy stays near a target.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple


class Crossing(NamedTuple):
    """A point of a path: the numbers of two corruptions and their severities."""

    first: int
    second: int
    first_severity: float
    second_severity: float


def crossfade(corruptions: int, level: int, steps: int) -> list[Crossing]:
    """The points from each corruption to the next: s₁ = level·(1 − t), s₂ = level·t, t from 0 to 1 in steps.

    The end of a path is the beginning of the next one and occurs once.
    """
    points = [
        Crossing(first, second, _rounded(level * (steps - step) / steps), _rounded(level * step / steps))
        for first, second in pairwise(range(corruptions))
        for step in range(steps)
    ]
    return [*points, Crossing(corruptions - 2, corruptions - 1, 0.0, float(level))]


def _rounded(severity: float) -> float:
    """At most three decimals, because the severity is part of a domain's name."""
    return round(severity, 3)
