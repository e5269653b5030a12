"""Ratios of medians. Contestants run in turns, so that a busy machine slows down all of them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Contestant = Callable[[], object]
Clock = Callable[[], float]
REPEATS = 5


@dataclass(frozen=True)
class Measure:
    """One line of the table: a value, its limit, and its lowest and highest turn."""

    section: str
    name: str
    value: float
    unit: str = "×"
    limit: str = ""  # such as "≤ 1.2"; empty: reported only
    low: float | None = None
    high: float | None = None
    seconds: float | None = None  # median time of the contestant

    @property
    def held(self) -> bool | None:
        """Whether the limit was kept; None if there is none."""
        if not self.limit:
            return None
        relation, bound = self.limit.split()
        return self.value <= float(bound) if relation == "≤" else self.value >= float(bound)


def race(
    contestants: Mapping[str, Contestant],
    clock: Clock,
    repeats: int = REPEATS,
    report: Callable[[int], None] = lambda turn: None,
) -> dict[str, list[float]]:
    """Seconds of every contestant in every turn, after an untimed one; `report` gets each turn."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(repeats + 1):
        report(turn)
        for name, run in contestants.items():
            start = clock()
            run()
            if turn:
                seconds[name].append(clock() - start)
    return seconds


def ratios(
    section: str, seconds: Mapping[str, list[float]], to: str, limits: Mapping[str, str]
) -> list[Measure]:
    """The median of each contestant over that of `to`, with the lowest and highest ratio of a turn."""
    base, found = seconds[to], []
    for name, times in seconds.items():
        if name == to:
            continue
        turns = [a / b for a, b in zip(times, base, strict=True)]
        median = statistics.median(times)
        value = median / statistics.median(base)
        limit = limits.get(name, "")
        found.append(Measure(section, f"{name} / {to}", value, "×", limit, min(turns), max(turns), median))
    return found
