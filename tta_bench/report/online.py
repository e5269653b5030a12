"""Accuracy in the domains of a round, batch by batch, with few enough points for a page."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from tta_bench.corruptions.sets import SHORT_NAMES
from tta_bench.tables.online_curves import so_far

if TYPE_CHECKING:
    from pandas import DataFrame, Series

MOST_POINTS = 16  # per domain; a domain of ImageNet-C has 782 batches


def curves(frame: DataFrame, round_: int) -> dict[str, Any]:
    """The mean curve over seeds of every row in one round; the frame has a column `row`.

    A curve ends before the first domain that some seed of its row has not finished. Equal x coordinates are
    stored once, in `grids`; they count domains: 2.5 is the middle of the third.
    """
    here = frame[(frame["status"] == "ok") & (frame["round"] == round_)]
    names = here.drop_duplicates("domain_order").sort_values("domain_order")["corruption"]
    leading = here[_leading(here, frame.groupby("row")["seed"].nunique())]
    parts: dict[tuple[int, int], tuple[list[float], list[float]]] = {}
    for rows, ends, accuracy in so_far(leading):
        kept = range(len(ends))[::-1][:: -(-len(ends) // MOST_POINTS)][
            ::-1
        ]  # including the last: the domain's accuracy
        means = rows[["row", "domain_order"]].reset_index(drop=True).join(_table(accuracy[:, kept]))
        found: Any = means.groupby(["row", "domain_order"]).mean().round(2).T.to_dict("list")
        for place, values in found.items():
            grid = [round(place[1] + end / ends[-1], 4) for end in ends[kept].tolist()]
            parts[place] = (grid, values)
    return {"domains": [SHORT_NAMES.get(name, name) for name in names]} | _joined(parts)


def _table(values: Any) -> DataFrame:
    from pandas import DataFrame

    return DataFrame(values)


def _joined(parts: dict[tuple[int, int], tuple[list[float], list[float]]]) -> dict[str, Any]:
    """The curves of all rows from those of their domains."""
    grids: dict[tuple[float, ...], int] = {}
    rows: dict[int, list[tuple[list[float], list[float]]]] = {}
    for (row, _), part in sorted(parts.items()):
        rows.setdefault(row, []).append(part)
    found = []
    for row, domains in rows.items():
        grid, accuracy = (list(chain.from_iterable(each)) for each in zip(*domains, strict=True))
        number = grids.setdefault(tuple(grid), len(grids))
        found.append({"row": int(row), "grid": number, "accuracy": accuracy})
    return {"grids": list(map(list, grids)), "curves": found}


def _leading(here: DataFrame, seeds: Series) -> Series:
    """The records of the domains before the first that some seed of a row lacks."""
    counts = here.groupby(["row", "domain_order"])["seed"].nunique().unstack(fill_value=0)
    counts = counts.reindex(
        columns=range(int(here["domain_order"].max()) + 1) if len(here) else [], fill_value=0
    )
    complete = counts.eq(seeds.reindex(counts.index), axis=0)
    length = complete.cumprod(axis=1).sum(axis=1)
    return here["domain_order"] < here["row"].map(length)
