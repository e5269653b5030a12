"""Figure `pareto`: accuracy against memory, with a point for each row and the Pareto front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tta_bench.figures.style import COLOURS, PANEL, markers, number
from tta_bench.tables.build import build
from tta_bench.tables.table import Table, TableError

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


class Point(NamedTuple):
    """A row of the `cost` table."""

    group: str
    label: str
    mib: float
    accuracy: float


def draw(frame: DataFrame, round: int | None) -> Figure:
    """A point for each row of the `cost` table that has both numbers."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    found = points(build(frame, "cost", round=round))
    groups = list(dict.fromkeys(point.group for point in found))
    marker = markers([point.label for point in found])
    figure = Figure(figsize=(PANEL[0] * 1.6, PANEL[1] * 1.4), layout="constrained")
    axes = figure.subplots()
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(color="#DDDDDD", linewidth=0.5)
    x, y = zip(*((point.mib, point.accuracy) for point in front(found)), strict=True)
    axes.step(x, y, where="post", color="#999999", linewidth=0.8, zorder=1)
    for point in found:
        colour = COLOURS[groups.index(point.group) % len(COLOURS)]
        axes.plot(point.mib, point.accuracy, marker[point.label], color=colour, markersize=5)
    axes.set_xlabel("Memory of one step (MiB)")
    axes.set_ylabel("Accuracy (%)")
    for group, colour in zip(groups, COLOURS * len(groups), strict=False):
        axes.plot([], [], "s", color=colour, label=group)
    for label, mark in marker.items():
        axes.plot([], [], mark, color="#444444", markerfacecolor="none", label=label)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def points(table: Table) -> list[Point]:
    """The rows that have both numbers."""
    keys = [column.key for column in table.columns]
    memory, accuracy = keys.index("memory_mib"), keys.index("accuracy")
    found = [
        Point(group.label, row.label, number(row.entries[memory].value), number(row.entries[accuracy].value))
        for group, row in table.rows
        if row.entries[memory].value is not None and row.entries[accuracy].value is not None
    ]
    if not found:
        raise TableError(
            "figure pareto", "no row has accuracy and memory", "See `tta-bench table --layout cost`"
        )
    return found


def front(found: Sequence[Point]) -> list[Point]:
    """The points that no other beats in accuracy and memory, by memory."""
    best: list[Point] = []
    for point in sorted(found, key=lambda p: (p.mib, -p.accuracy)):
        if not best or point.accuracy > best[-1].accuracy:
            best.append(point)
    return best
