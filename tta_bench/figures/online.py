"""Accuracy so far, batch by batch: how quickly each method finds its way into a domain."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from tta_bench.corruptions.sets import SHORT_NAMES
from tta_bench.figures.style import colours, panels
from tta_bench.layouts.types import TableError
from tta_bench.table import build

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

MOST_NAMED = 20  # domains; of more, names would cover each other


class Curve(NamedTuple):
    """Accuracy (%) over the images of a domain so far, after so many images of the round."""

    images: list[int]
    accuracy: list[float]


def draw(frame: DataFrame, round: int | None) -> Figure:
    """A line for each method through the domains of one round (default: the first)."""
    chosen = 1 if round is None else round
    build(frame, "per-corruption", round=chosen)  # refuses what must not stand side by side
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
    """The cells that have been through every domain that any cell has been through."""
    return rows[rows.groupby("key")["domain_order"].transform("nunique") == rows["domain_order"].nunique()]


def mean_curves(rows: DataFrame) -> list[Curve]:
    """One method's curves, one for each domain in order, means over seeds."""
    found = []
    before = 0
    for _, of_domain in rows.sort_values("domain_order").groupby("domain_order"):
        n, batch = int(of_domain["n"].iloc[0]), int(of_domain["batch_size"].iloc[0])
        hits = [list(accumulate(correct)) for correct in of_domain["correct_per_batch"]]
        ends = [min((i + 1) * batch, n) for i in range(len(hits[0]))]
        means = [sum(seeds) / len(seeds) for seeds in zip(*hits, strict=True)]
        accuracies = [100 * mean / end for mean, end in zip(means, ends, strict=True)]
        found.append(Curve([before + end for end in ends], accuracies))
        before += n
    return found


def _named(rows: DataFrame) -> bool:
    return bool(1 < rows["domain_order"].nunique() <= MOST_NAMED)


def _domains(axes: Axes, rows: DataFrame) -> None:
    """Where domains begin, and their names above."""
    domains = rows.drop_duplicates("domain_order").sort_values("domain_order")
    begins = [0, *(int(end) for end in accumulate(domains["n"]))]
    for begin in begins[1:-1]:
        axes.axvline(begin, color="#BBBBBB", linewidth=0.5)
    if _named(rows):
        for name, begin, end in zip(domains["corruption"], begins, begins[1:], strict=False):
            place = ((begin + end) / 2, 1.02)
            text = SHORT_NAMES.get(name, name)
            axes.text(*place, text, transform=axes.get_xaxis_transform(), rotation=90, ha="center", size=5)
