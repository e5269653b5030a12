"""Figure `online`: accuracy so far, batch by batch, in each domain of a round."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from tta_bench.corruptions.sets import SHORT_NAMES
from tta_bench.figures.style import colours, panels
from tta_bench.tables.build import build
from tta_bench.tables.online_curves import mean_curves
from tta_bench.tables.table import TableError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

MOST_NAMED = 20  # domains; the names of more would overlap


def draw(frame: DataFrame, round: int | None) -> Figure:
    """A curve for each method over the domains of one round (default: the first)."""
    chosen = 1 if round is None else round
    build(frame, "per-corruption", round=chosen)  # raises an error if the records cannot be compared
    ok = frame[(frame["status"] == "ok") & (frame["round"] == chosen)]
    groups = list(complete(ok).groupby(["model_order", "quantizer_order", "model", "bits"], sort=True))
    if not groups:
        raise TableError("figure online", f"round {chosen} is not complete", "See `tta-bench status`")
    colour = colours(list(ok.sort_values("method_order")["method"].unique()))
    figure, axes = panels(len(groups))
    for (place, group), panel in zip(groups, axes, strict=True):
        panel.set_title(f"{place[2]} {place[3]}", pad=30 if _named(group) else 6)
        for method, rows in group.sort_values("method_order").groupby("method", sort=False):
            for i, curve in enumerate(mean_curves(rows)):
                panel.plot(*curve, color=colour[str(method)], label="" if i else str(method))
        _domains(panel, group)
        panel.set_xlabel("Images seen")
        panel.legend()
    axes[0].set_ylabel("Accuracy so far in the domain (%)")
    return figure


def complete(rows: DataFrame) -> DataFrame:
    """The records of the cells that have finished every domain that any cell has."""
    return rows[rows.groupby("key")["domain_order"].transform("nunique") == rows["domain_order"].nunique()]


def _named(rows: DataFrame) -> bool:
    return bool(1 < rows["domain_order"].nunique() <= MOST_NAMED)


def _domains(axes: Axes, rows: DataFrame) -> None:
    """Lines between the domains, and their names above."""
    domains = rows.drop_duplicates("domain_order").sort_values("domain_order")
    begins = [0, *(int(end) for end in accumulate(domains["n"]))]
    for begin in begins[1:-1]:
        axes.axvline(begin, color="#BBBBBB", linewidth=0.5)
    if _named(rows):
        for name, begin, end in zip(domains["corruption"], begins, begins[1:], strict=False):
            place = ((begin + end) / 2, 1.02)
            text = SHORT_NAMES.get(name, name)
            axes.text(*place, text, transform=axes.get_xaxis_transform(), rotation=90, ha="center", size=5)
