"""The layout `engines`: what a run says about integer engines, in columns and a footnote."""

from __future__ import annotations

import pytest
from pandas import DataFrame, concat

from tests.tables.test_layouts import cell
from tta_bench.tables.build import build
from tta_bench.tables.frame import _agreement, _engine_note
from tta_bench.tables.table import Row, Table

OLD_FACTS = {"name": "onnxruntime", "images": 32, "same_top1": 31, "largest_difference": 0.0587}
FACTS = OLD_FACTS | {"integer_sites": 26, "expected_sites": 26, "version": "1.31.0"}


@pytest.fixture(scope="module")
def table() -> Table:
    """One method, simulated and on an engine."""
    simulated = cell("ZOA", quantizer_order=0, seconds=6.4, resident_mib=600.0)
    engine = cell(
        "ZOA",
        quantizer="uniform onnxruntime",
        quantizer_order=1,
        seconds=3.2,
        resident_mib=400.0,
        agreement=_agreement(FACTS),
        engine_note=_engine_note(FACTS),
    )
    return build(concat([simulated, engine]), "engines")


def row_of(table: Table, quantizer: str) -> Row:
    (row,) = next(group.rows for group in table.groups if group.quantizer == quantizer)
    return row


def shown(table: Table, quantizer: str) -> dict[str, float | bool | None]:
    entries = row_of(table, quantizer).entries
    return {column.key: entry.value for column, entry in zip(table.columns, entries, strict=True)}


def test_an_engine_stands_beside_the_simulation(table: Table) -> None:
    assert shown(table, "uniform") == {
        "accuracy": 52.0, "agreement": None, "memory_mib": 200.0, "packed_mib": 80.0, "resident_mib": 600.0,
        "ms_per_image": 10.0,
    }  # fmt: skip
    assert shown(table, "uniform onnxruntime") == {
        "accuracy": 52.0, "agreement": 96.875, "memory_mib": 200.0, "packed_mib": 80.0, "resident_mib": 400.0,
        "ms_per_image": 5.0,
    }  # fmt: skip


def test_the_agreement_is_a_footnote_of_the_row(table: Table) -> None:
    (mark,) = row_of(table, "uniform onnxruntime").marks
    assert table.footnotes[mark - 1] == (
        "onnxruntime 1.31.0 against the simulation when it was loaded: the same class on 31 of 32 "
        "calibration images, logits within 0.059; 26 of 26 sites in integers"
    )
    assert row_of(table, "uniform").marks == ()


def test_older_records_have_a_shorter_footnote() -> None:
    assert _engine_note(OLD_FACTS) == (
        "onnxruntime against the simulation when it was loaded: the same class on 31 of 32 calibration "
        "images, logits within 0.059"
    )


def test_the_simulation_has_no_agreement_and_no_footnote_about_it(table: Table) -> None:
    (entry,) = (
        entry
        for column, entry in zip(table.columns, row_of(table, "uniform").entries, strict=True)
        if column.key == "agreement"
    )
    assert entry.value is None
    assert entry.marks == ()
    assert "not recorded" not in table.footnotes


def test_times_say_where_they_were_taken(table: Table) -> None:
    entry = row_of(table, "uniform onnxruntime").entries[-1]
    assert "timed on" in table.footnotes[entry.marks[0] - 1]


def test_the_footnote_is_in_every_layout(table: Table) -> None:
    engine: DataFrame = cell("ZOA", engine_note=_engine_note(FACTS), agreement=_agreement(FACTS))
    assert any("31 of 32" in text for text in build(engine, "cost").footnotes)
