"""Figure `motivation`: clean and corrupted accuracy of each quantised model, with an arrow for the loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tta_bench.figures.style import PANEL, number
from tta_bench.tables.build import build
from tta_bench.tables.table import Row, RowGroup, Table, TableError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

WIDTH = 0.36
CLEAN, CORRUPTED, ARROW = "#9DB8D2", "#0072B2", "#C1272D"


def draw(frame: DataFrame, round: int | None) -> Figure:
    """Two bars for each row of the `gap` table."""
    from matplotlib.figure import Figure

    rows = complete(build(frame, "gap", round=round))
    figure = Figure(figsize=(max(PANEL[0], 0.9 * len(rows)), PANEL[1]), layout="constrained")
    axes = figure.subplots()
    for place, (_, row) in enumerate(rows):
        _pair(axes, place, row)
    several = len({row.label for _, row in rows}) > 1
    names = [f"{group.label} {row.label}" if several else group.label for group, row in rows]
    axes.set_xticks(range(len(rows)), [name.replace(" ", "\n") for name in names])
    axes.set_ylabel("Accuracy (%)")
    axes.set_ylim(0, 100)
    axes.legend(*axes.get_legend_handles_labels(), loc="upper right", ncols=2)
    return figure


def complete(table: Table) -> list[tuple[RowGroup, Row]]:
    """The rows that have all three numbers."""
    found = [pair for pair in table.rows if all(entry.value is not None for entry in pair[1].entries)]
    if not found:
        raise TableError("figure motivation", "no row is complete", "See `tta-bench table --layout gap`")
    return found


def _pair(axes: Axes, place: int, row: Row) -> None:
    clean, corrupted, gap = (number(entry.value) for entry in row.entries)
    first = place == 0
    axes.bar(place - WIDTH / 2, clean, WIDTH, color=CLEAN, label="clean (ID)" if first else None)
    axes.bar(place + WIDTH / 2, corrupted, WIDTH, color=CORRUPTED, label="corrupted (OOD)" if first else None)
    x = place + WIDTH / 2
    arrow = {"arrowstyle": "->", "color": ARROW, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", xy=(x, corrupted), xytext=(x, clean), arrowprops=arrow)
    axes.text(place + WIDTH * 0.62, (clean + corrupted) / 2, f"−{gap:.1f}", color=ARROW, va="center", size=7)
