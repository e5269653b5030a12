"""Columns that are added by name: times and where they were taken, calibration, worst domain, forgetting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.helpers.command import tta_bench
from tests.helpers.report_results import DEMO, write
from tests.tables.test_layouts import cell, entries, rows, values
from tta_bench.tables.build import build
from tta_bench.tables.further import NAMES
from tta_bench.tables.table import TableError


def timed(name: str, host: str = "alpha", **changes: Any) -> pd.DataFrame:
    """A cell that takes 3.2 s for the 640 images of each domain."""
    facts = {"seconds": 3.2, "host": host, "device": "cpu", "threads": 2, "ece": 4.0, "top5": 90.0} | changes
    return cell(name, 50.0, key=name + host + str(changes), **facts)


def test_cost_shows_time_and_calibration() -> None:
    found = values(build(timed("ZOA"), "cost"), "ZOA")
    assert (found["ms_per_image"], found["ece"]) == (5.0, 4.0)
    assert "ms_per_image" not in values(build(timed("ZOA"), "cost", columns=[]), "ZOA")


def test_times_are_marked_with_their_place_and_never_ranked() -> None:
    given = pd.concat([timed("Source"), timed("ZOA", "beta", seconds=1.6)])
    table = build(given, "cost", columns=["ms_per_image", "throughput"])
    found = {label: entries(table, label)["ms_per_image"] for label in rows(table)}
    notes = {label: [table.footnotes[mark - 1] for mark in each.marks] for label, each in found.items()}
    assert notes == {"Source": ["timed on alpha (cpu, 2 threads)"], "ZOA": ["timed on beta (cpu, 2 threads)"]}
    assert not any(each.rank or each.best for each in found.values())
    assert values(table, "ZOA")["throughput"] == 400.0
    both = pd.concat([timed("ZOA"), timed("ZOA", "beta", seed=2)])
    [mark] = entries(build(both, "cost"), "ZOA")["ms_per_image"].marks
    text = build(both, "cost").footnotes[mark - 1]
    assert text == "timed on alpha (cpu, 2 threads) and beta (cpu, 2 threads)"


def test_worst_domain_and_forgetting() -> None:
    given = timed("ZOA")
    worse = given["corruption"] == "snow"
    given.loc[worse, "accuracy"] -= 8
    asked = {"columns": ["worst_domain", "forgetting", "top5"]}
    found = values(build(given, "cost", **asked), "ZOA")
    assert (found["worst_domain"], found["forgetting"], found["top5"]) == (44.0, -2.0, 90.0)
    assert values(build(given, "long-term", **asked), "ZOA")["worst_domain"] == 43.0, "over all rounds"
    with pytest.raises(TableError, match="forgetting compares two rounds"):
        build(given[given["round"] == 1], "cost", columns=["forgetting"])


def test_what_older_records_lack_is_a_dash_that_says_so() -> None:
    table = build(cell("ZOA"), "cost", columns=["class_accuracy"])
    found = entries(table, "ZOA")["class_accuracy"]
    assert found.value is None
    assert [table.footnotes[mark - 1] for mark in found.marks] == ["not recorded"]
    assert (
        values(build(timed("ZOA", class_accuracy=40.0), "cost", columns=["class_accuracy"]), "ZOA")[
            "class_accuracy"
        ]
        == 40.0
    )


@pytest.mark.parametrize(
    ("layout", "columns", "message"),
    [
        ("cost", ["ms"], 'unknown column "ms"'),
        ("pairs", ["ece"], "it takes no further columns"),
    ],
)
def test_mistakes_are_told(layout: str, columns: list[str], message: str) -> None:
    with pytest.raises(TableError, match=message):
        build(timed("ZOA"), layout, columns=columns)


def test_the_command_adds_columns(tmp_path: Path) -> None:
    write(DEMO, tmp_path)
    for layout in ("per-corruption", "long-term", "ablation", "cost"):
        shown = tta_bench(
            "table",
            "--results",
            tmp_path,
            "--layout",
            layout,
            "--format",
            "csv",
            "--columns",
            ",".join(NAMES),
        )
        assert shown.returncode == 0, shown.stderr
        assert set(NAMES) <= set(shown.stdout.splitlines()[0].split(","))
