"""The layout `engines`: what a run says about integer engines, in columns and a footnote."""

from __future__ import annotations

import pytest
from pandas import DataFrame, concat

from tests.tables.test_layouts import cell
from tta_bench.tables.build import build
from tta_bench.tables.frame import _agreement, _engine_note
from tta_bench.tables.table import Row, Table

FACTS = {"name": "onnxruntime", "images": 32, "same_top1": 31, "largest_difference": 0.0587}


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
        "accuracy": 52.0, "agreement": None, "milliseconds": 10.0, "resident_mib": 600.0, "packed_mib": 80.0,
    }  # fmt: skip
    assert shown(table, "uniform onnxruntime") == {
        "accuracy": 52.0, "agreement": 96.875, "milliseconds": 5.0, "resident_mib": 400.0, "packed_mib": 80.0,
    }  # fmt: skip


def test_the_agreement_is_a_footnote_of_the_row(table: Table) -> None:
    (mark,) = row_of(table, "uniform onnxruntime").marks
    assert table.footnotes[mark - 1] == (
        "onnxruntime against the simulation when it was loaded: the same class on 31 of 32 calibration "
        "images, logits within 0.059"
    )
    assert row_of(table, "uniform").marks == ()


def test_the_footnote_is_in_every_layout(table: Table) -> None:
    engine: DataFrame = cell("ZOA", engine_note=_engine_note(FACTS), agreement=_agreement(FACTS))
    assert any("31 of 32" in text for text in build(engine, "cost").footnotes)
