"""Layout `domain-orders`: orders of the domains are repetitions, as seeds are; tables refuse mixtures."""

from __future__ import annotations

import json
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.tables.test_layouts import cell, entries, values
from tta_bench.tables.build import build
from tta_bench.tables.statistics import Evidence, compare, estimate
from tta_bench.tables.table import TableError

ORDERS = ("cotta 0", "cotta 1", "cotta 2", "cotta 3", "cotta 4")
LEVELS = {"TENT": (50.0, 52.0, 51.0, 55.0, 49.0), "ZOA": (70.0, 70.5, 71.0, 69.5, 70.0)}


def in_order(method: str, order: str, accuracy: float, **changes: Any) -> pd.DataFrame:
    """A method on domains in one order, with a fingerprint and facts of its own."""
    name = f"domain order {order}"
    identity = json.dumps({"domains": None, "domain_order": order})
    found = cell(method, accuracy, stream=name, identity=identity, fingerprint=name, **changes)
    found["accuracy"] += np.where(found["corruption"] == "fog", 1.0, -1.0) * (1 + len(method) % 2)
    return found


def frame(**changes: Any) -> pd.DataFrame:
    return pd.concat(
        [
            in_order(method, order, level, method_order=i, **changes)
            for i, (method, levels) in enumerate(LEVELS.items())
            for order, level in zip(ORDERS, levels, strict=True)
        ]
    )


def scores(method: str) -> np.ndarray:
    """Accuracy at the last round by order and domain."""
    spread = 1 + len(method) % 2
    return np.array([[level + 2 + spread, level + 2 - spread] for level in LEVELS[method]])


def test_every_order_is_a_column_beside_their_mean_and_deviation() -> None:
    table = build(frame(), "domain-orders")
    assert [column.key for column in table.columns] == [*ORDERS, "mean", "std", "rank"]
    assert [group.label for group in table.groups] == ["vit W8A8"]
    for method, levels in LEVELS.items():
        found, last = values(table, method), [level + 2 for level in levels]
        assert [found[order] for order in ORDERS] == last
        assert found["mean"] == pytest.approx(fmean(last))
        assert found["std"] == pytest.approx(stdev(levels))
        assert entries(table, method)["mean"].std == pytest.approx(stdev(levels))
        assert entries(table, method)["mean"].seeds == len(ORDERS)


def test_intervals_and_ranks_of_the_mean_are_over_orders() -> None:
    """More images would not make them narrower, more orders would."""
    table = build(frame(), "domain-orders")
    for method in LEVELS:
        expected = estimate(Evidence(scores(method), 1280))
        assert expected is not None
        assert entries(table, method)["mean"].interval == pytest.approx(expected.half)
    ours, theirs = (Evidence(scores(method), 1280) for method in ("ZOA", "TENT"))
    difference = compare(ours, theirs)
    assert difference is not None
    assert difference.low > 0
    assert [entries(table, method)["rank"].rank for method in LEVELS] == ["2", "1"]


def test_seeds_are_averaged_first() -> None:
    two = pd.concat([frame(seed=1), frame(seed=2).assign(accuracy=lambda f: f["accuracy"] + 4)])
    found = entries(build(two, "domain-orders"), "TENT")
    assert found["mean"].value == pytest.approx(fmean(LEVELS["TENT"]) + 2 + 2)
    assert found["mean"].std == found["std"].value == pytest.approx(stdev(LEVELS["TENT"]))


def test_a_row_without_one_order_has_no_mean() -> None:
    given = frame()
    lacking = given[~((given["method"] == "ZOA") & (given["stream"] == "domain order cotta 3"))]
    found = values(build(lacking, "domain-orders"), "ZOA")
    assert (found["mean"], found["std"], found["cotta 3"]) == (None, None, None)
    assert found["cotta 2"] == 73.0


def test_other_layouts_have_a_group_of_rows_for_each_order() -> None:
    table = build(frame(), "long-term")
    assert [group.stream for group in table.groups] == [f"domain order {order}" for order in ORDERS]
    assert [row.entries[-1].rank for row in table.groups[0].rows] == ["", ""], "of one seed, too few batches"


def test_one_order_is_one_column() -> None:
    table = build(cell("TENT"), "domain-orders")
    assert [column.key for column in table.columns] == ["accuracy"]


# -- one stream, one order ----------------------------------------------------------------------------


def facing(method: str, *domains: str, **stated: Any) -> pd.DataFrame:
    identity = json.dumps({"domains": [[name, 5] for name in domains]} | stated)
    return cell(method, identity=identity)


@pytest.mark.parametrize(
    "other",
    [
        facing("ZOA", "snow", "fog"),
        facing("ZOA", "snow", "frost", "fog"),
        facing("ZOA", "fog", "snow", domain_order="per-round"),
        facing("ZOA", "fog", "snow", listed=[["snow", 5], ["fog", 5]]),
    ],
)
def test_methods_that_saw_the_domains_in_other_orders_are_not_compared(other: pd.DataFrame) -> None:
    """Before: they were ranked together, as each domain alone has the same images in the same order."""
    with pytest.raises(TableError, match="one table would mix orders of domains"):
        build(pd.concat([facing("TENT", "fog", "snow"), other]), "long-term")


def test_a_part_of_the_domains_in_the_same_order_is_no_other_order() -> None:
    part = facing("ZOA", "fog", "frost", "snow")
    assert build(pd.concat([facing("TENT", "fog", "snow"), part]), "long-term").groups
