"""Rows never mix: every cell of a row shares its identity but the seed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.helpers.report_results import FULL, Grid, Method, write
from tests.tables.test_complete_rows import SMALL
from tests.tables.test_layouts import cell, values
from tests.tables.test_table import find, reasons
from tta_bench import config, grid
from tta_bench.planning import estimate
from tta_bench.tables import frame
from tta_bench.tables.build import build
from tta_bench.tables.table import Table, TableError


def loaded(tmp_path: Path, *grids: Grid) -> pd.DataFrame:
    """Benchmarks side by side, as `table --name a --name b` has them."""
    return frame.load(*(write(each, tmp_path) for each in grids))


def t3a(filter_k: int) -> tuple[Method, ...]:
    return (Method("T3A", "t3a", 50, params={"filter_k": filter_k}),)


def labels(table: Table) -> list[str]:
    return [row.label for group in table.groups for row in group.rows]


ONE = replace(SMALL, name="one", methods=t3a(20), seeds=(2020,))


@pytest.mark.parametrize(
    ("other", "mixed", "names"),
    [
        ({"methods": t3a(1)}, "filter_k 1, 20 of T3A", ["T3A (filter_k=1)", "T3A (filter_k=20)"]),
        ({"images": 128}, "limit 128, 512", ["T3A (limit=128)", "T3A (limit=512)"]),
        ({"batch": 32}, "batch size 32, 64 of T3A", ["T3A (batch size=32)", "T3A (batch size=64)"]),
        ({"rounds": 2}, "rounds 1, 2 of T3A", ["T3A (rounds=1)", "T3A (rounds=2)"]),
    ],
)
def test_cells_that_differ_are_not_seeds_of_one_row(
    tmp_path: Path, other: dict[str, Any], mixed: str, names: list[str]
) -> None:
    given = loaded(tmp_path, ONE, replace(ONE, name="two", seeds=(2021,), **other))
    with pytest.raises(TableError, match=f"one table would mix {mixed}"):
        build(given, "per-corruption", round=1)
    table = build(given, "per-corruption", round=1, allow_mixed=True)
    assert labels(table) == names


def test_weights_of_another_content_are_another_row(tmp_path: Path) -> None:
    given = loaded(tmp_path, ONE)
    other = given.assign(key="other", seed=2021, identity=given.identity.str.replace("abab", "cdcd"))
    with pytest.raises(TableError, match=r"one table would mix model\.fingerprint"):
        build(pd.concat([given, other]), "cost")


def test_where_files_are_is_not_what_they_contain(tmp_path: Path) -> None:
    store = write(ONE, tmp_path)
    cells = store.manifest()["cells"]
    home, away = (frame.identity(c | {"data": c["data"] | {"params": {"root": root}}}) for c in cells
                  for root in ("/home/a/images", "/mnt/images"))  # fmt: skip
    assert home == away


def test_seeds_of_one_row_are_still_averaged(tmp_path: Path) -> None:
    given = loaded(tmp_path, ONE, replace(ONE, name="two", seeds=(2021,)))
    table = build(given, "per-corruption")
    assert labels(table) == ["T3A"]
    assert table.groups[0].rows[0].entries[0].seeds == 2


def test_seeds_of_different_code_are_marked(tmp_path: Path) -> None:
    given = loaded(tmp_path, replace(ONE, seeds=(1, 2)))
    table = build(given.assign(code=given.seed.map({1: "a", 2: "b"})), "cost")
    row = find(table, "vit-micro FP32", "T3A")
    assert reasons(table, row) == ["its seeds were computed by different code of its plugins"]


# -- plan -------------------------------------------------------------------------------------------

BENCHMARK = {
    "name": "b",
    "data": "cifar10-mini",
    "models": ["vit-micro"],
    "methods": [
        {"use": "tent", "name": "TENT"},
        {"use": "tent", "name": "TENT*", "reset": "domain"},
    ],
    "stream": {"corruptions": ["fog", "snow"], "rounds": 1, "limit": 64},
}


def cells(**stream: Any) -> list[grid.Cell]:
    return grid.expand(config.parse(BENCHMARK | {"stream": BENCHMARK["stream"] | stream}))  # type: ignore[operator]


def test_plan_lists_a_method_and_its_reset_twin() -> None:
    assert [row["method"] for row in estimate.describe("b", cells()).data["memory"]] == ["TENT", "TENT*"]


# -- severity and batch size as axes ----------------------------------------------------------------


def test_every_severity_and_batch_size_makes_cells_of_its_own() -> None:
    found = cells(severity=[1, 3, 5], batch_size=[8, 64])
    assert len(found) == len({cell.key for cell in found}) == 2 * 3 * 2
    assert found[0].labels.stream == "severity 1, batch size 8"
    assert {cell.domains[0] for cell in found} == {("fog", 1), ("fog", 3), ("fog", 5)}
    assert {cell.batch_size for cell in found} == {8, 64}


def test_one_value_is_no_axis() -> None:
    one, listed = cells(severity=3, batch_size=8), cells(severity=[3], batch_size=[8])
    assert [cell.key for cell in one] == [cell.key for cell in listed]
    assert {cell.labels.stream for cell in one} == {""}


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        ({"severity": [3, 3]}, r"stream\.severity\[1\]: given twice"),
        ({"severity": [3, 9]}, r"stream\.severity\[1\]: 9 does not fit"),
        ({"severity": 9}, r"stream\.severity: 9 does not fit"),
        ({"batch_size": []}, r"stream\.batch_size: .* does not fit"),
    ],
)
def test_axes_are_checked(stream: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        cells(**stream)


def test_tables_keep_streams_apart() -> None:
    """Severities are groups of their own, each ranked by itself, in the order of their numbers."""
    parts = [
        cell(method, mean + 10 * (severity == 1), seed=seed, severity=severity, stream=f"severity {severity}",
             key=f"{method}{severity}{seed}")
        for severity in (5, 1)
        for method, mean in (("A", 50.0), ("B", 60.0))
        for seed in (1, 2)
    ]  # fmt: skip
    table = build(pd.concat(parts), "per-corruption")
    assert [group.label for group in table.groups] == ["vit W8A8, severity 1", "vit W8A8, severity 5"]
    assert [row.entries[0].value for group in table.groups for row in group.rows] == [62.0, 72.0, 52.0, 62.0]
    assert [row.entries[0].rank for group in table.groups for row in group.rows] == ["2", "1", "2", "1"]
    assert "severities 1, 5" in table.caption


# -- ticks ------------------------------------------------------------------------------------------


def test_the_papers_ticks() -> None:
    zoa = {"c": 0.02, "distribution": "rsu", "bank_policy": "similar"}
    given = pd.concat(
        [
            cell("Source", plugin="source"),
            cell("EATA", plugin="eata", backprop=True),
            cell("V1", params=zoa | {"bank_size": 0}),
            cell("random", params=zoa | {"bank_size": 32, "bank_policy": "random"}),
            cell("ZOA", params=zoa | {"bank_size": 32}),
        ]
    )
    table = build(given, "ablation")
    names = ("backprop", "zeroth_order", "domain_learning", "domain_management")
    ticks = {label: [values(table, label)[name] for name in names] for label in labels(table)}
    assert ticks == {
        "EATA": [True, False, False, False],
        "Source": [False, False, False, False],
        "V1": [False, True, False, False],
        "ZOA": [False, True, True, True],
        "random": [False, True, True, False],
    }
    assert [c.name for c in table.columns][1:5] == ["BP", "ZO", "DRL", "DKM"]
    assert build(given, "per-corruption").columns[0].name == "BP"
    forward_only = given[given.method != "EATA"]
    assert build(forward_only, "per-corruption").columns[0].name == "Fog"


def test_a_page_of_several_severities_has_a_part_for_each(tmp_path: Path) -> None:
    from tta_bench.report import gather

    mild = replace(ONE, name="mild", domains=tuple((name, 1) for name, _ in FULL[:3]))
    parts = gather([write(ONE, tmp_path), write(mild, tmp_path)])["streams"]
    assert len(parts) == 2
