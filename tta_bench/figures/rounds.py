"""Figure `rounds`: accuracy by round, with a panel for each quantised model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tta_bench.errors import UserError
from tta_bench.figures.style import colours, markers, number, panels
from tta_bench.tables.build import build
from tta_bench.tables.table import Row, Table, TableError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame


def draw(frame: DataFrame, round: int | None) -> Figure:
    """A line for each row of the `long-term` table, with a band for its 95 % interval over seeds."""
    from matplotlib.ticker import MaxNLocator

    if round is not None:
        raise UserError("figure rounds: it shows every round. Leave out --round.")
    table = build(frame, "long-term")
    shown = [group for group in table.groups if any(_points(table, row) for row in group.rows)]
    if not shown:
        raise TableError("figure rounds", "no round is complete", "See `tta-bench table --layout long-term`")
    labels = [row.label for group in shown for row in group.rows]
    colour, marker = colours(labels), markers(labels)
    figure, axes = panels(len(shown))
    for group, panel in zip(shown, axes, strict=True):
        panel.set_title(group.label)
        for row in group.rows:
            _line(panel, _points(table, row), row.label, colour[row.label], marker[row.label])
        panel.set_xlabel("Round")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    # One legend below all panels: inside a panel it would cover lines.
    lines = {str(line.get_label()): line for panel in axes for line in panel.get_lines()}
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=min(len(lines), 6))
    axes[0].set_ylabel("Accuracy (%)")
    return figure


def _points(table: Table, row: Row) -> list[tuple[int, float, float]]:
    """Round, mean and half the interval of each round that has a number."""
    return [
        (int(column.name), number(entry.value), entry.interval or 0.0)
        for column, entry in zip(table.columns, row.entries, strict=True)
        if column.key.startswith("round_") and entry.value is not None
    ]


def _line(axes: Axes, points: list[tuple[int, float, float]], label: str, colour: str, marker: str) -> None:
    if not points:
        return
    x, mean, half = zip(*points, strict=True)
    axes.plot(x, mean, color=colour, marker=marker, label=label)
    low, high = ([m + sign * h for m, h in zip(mean, half, strict=True)] for sign in (-1, 1))
    axes.fill_between(x, low, high, color=colour, alpha=0.1, linewidth=0)
