"""Accuracy inside the domains of a round, batch by batch, thin enough for a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tta_bench.corruptions.sets import SHORT_NAMES
from tta_bench.figures.online import mean_curves

if TYPE_CHECKING:
    from pandas import DataFrame

MOST_POINTS = 16  # of a domain; ImageNet-C has 782 batches in each


def curves(frame: DataFrame, round_: int, places: Mapping[str, int]) -> dict[str, Any]:
    """The mean curve over seeds of every row in one round; `places` are the rows of cells.

    Only domains that all seeds of a row have finished, from the first on without a gap, are drawn. Curves
    share their `grids`, which count domains: 2.5 is half-way through the third.
    """
    row = frame["key"].map(places)
    seeds = frame.groupby(row)["seed"].nunique()
    here = frame[(frame["status"] == "ok") & (frame["round"] == round_)]
    names = here.drop_duplicates("domain_order").sort_values("domain_order")["corruption"]
    grids: list[list[float]] = []
    found = []
    for place, records in here.groupby(row):
        common = _leading(records, seeds[place])
        if common.empty:
            continue
        grid, accuracy = _thinned(common)
        if grid not in grids:
            grids.append(grid)
        found.append({"row": int(place), "grid": grids.index(grid), "accuracy": accuracy})
    return {"domains": [SHORT_NAMES.get(name, name) for name in names], "grids": grids, "curves": found}


def _leading(records: DataFrame, seeds: int) -> DataFrame:
    """The records of the first domains that every seed has, without a gap."""
    counts = records.groupby("domain_order")["seed"].nunique()
    complete = set(counts[counts == seeds].index.astype(int))
    length = next(i for i in range(len(complete) + 1) if i not in complete)
    return records[records["domain_order"] < length]


def _thinned(records: DataFrame) -> tuple[list[float], list[float]]:
    """A curve with at most `MOST_POINTS` a domain; the last, which is the domain's accuracy, is kept."""
    grid: list[float] = []
    accuracy: list[float] = []
    start = 0
    for domain, curve in enumerate(mean_curves(records)):
        end = curve.images[-1]
        step = -(-len(curve.images) // MOST_POINTS)
        kept = range(len(curve.images))[::-1][::step][::-1]
        grid += [round(domain + (curve.images[i] - start) / (end - start), 4) for i in kept]
        accuracy += [round(curve.accuracy[i], 2) for i in kept]
        start = end
    return grid, accuracy
