"""Accuracy in the domains of a round, batch by batch, with few enough points for a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tta_bench.corruptions.sets import SHORT_NAMES
from tta_bench.tables.online_curves import mean_curves

if TYPE_CHECKING:
    from pandas import DataFrame

MOST_POINTS = 16  # per domain; a domain of ImageNet-C has 782 batches


def curves(frame: DataFrame, round_: int, places: Mapping[str, int]) -> dict[str, Any]:
    """The mean curve over seeds of every row in one round; `places` has the row of each cell.

    A curve ends before the first domain that some seed of its row has not finished. Equal x coordinates are
    stored once, in `grids`; they count domains: 2.5 is the middle of the third.
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
    """The records of the domains before the first that some seed lacks."""
    counts = records.groupby("domain_order")["seed"].nunique()
    complete = set(counts[counts == seeds].index.astype(int))
    length = next(i for i in range(len(complete) + 1) if i not in complete)
    return records[records["domain_order"] < length]


def _thinned(records: DataFrame) -> tuple[list[float], list[float]]:
    """A curve with at most `MOST_POINTS` per domain, including the last, which is the domain's accuracy."""
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
