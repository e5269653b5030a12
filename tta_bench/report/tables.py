"""A Table as data for the page: numbers as printed, and its LaTeX and CSV in pieces.

The page can leave out and reorder rows. It joins these pieces and never formats LaTeX or CSV itself.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tta_bench.tables.render import render
from tta_bench.tables.render.data import DECIMALS
from tta_bench.tables.render.latex import pieces
from tta_bench.tables.render.numbers import number
from tta_bench.tables.table import Column, Row, RowGroup, Table, TableEntry


class RowKey(NamedTuple):
    """The key of a row of the page; the same in every table."""

    model: str
    quantizer: str
    bits: str
    stream: str
    method: str
    variant: str
    reset: str
    version: str
    settings: str

    @property
    def quantization(self) -> str:
        """The quantizer and its bits, for readers."""
        return self.bits if self.bits == "FP32" else f"{self.quantizer} {self.bits}"


def key_of(group: RowGroup, row: Row) -> RowKey:
    """The key of a table's row."""
    place = (group.model, group.quantizer, group.bits, group.stream)
    return RowKey(*place, row.method, row.variant, row.reset, row.version, row.settings)


def packed(table: Table, places: Mapping[RowKey, int]) -> dict[str, Any]:
    """A table as plain data; each of its rows has the number of its row of the page."""
    return {
        **{name: getattr(table, name) for name in ("layout", "caption", "marks", "notes", "footnotes")},
        "columns": [vars(column) for column in table.columns],
        "rows": list(_rows(table, places)),
        "latex": pieces(table)._asdict(),
        "csv": list(csv.reader(io.StringIO(render(table, "csv")))),
    }


def _rows(table: Table, places: Mapping[RowKey, int]) -> Iterator[dict[str, Any]]:
    for group, row in table.rows:
        if not row.published:  # a published row follows the row of ours that it belongs to
            place = places[key_of(group, row)]
        pairs = zip(row.entries, table.columns, strict=True)
        yield {
            "row": place,
            **{name: getattr(row, name) for name in ("label", "published", "marks")},
            "entries": [_entry(entry, column) for entry, column in pairs],
        }


def _entry(entry: TableEntry, column: Column) -> dict[str, Any]:
    """A number with its text; fields that are empty or false are left out."""
    found: dict[str, Any] = {"marks": entry.marks, "best": entry.best, "rank": entry.rank}
    if isinstance(entry.value, bool):
        found |= {"value": entry.value, "text": "✓" if entry.value else "✗"}
    elif entry.value is not None:
        text, spread = number(entry, column)
        found |= {"value": round(entry.value, DECIMALS), "text": text, "spread": spread}
        if entry.interval is not None:
            found["interval"] = round(entry.interval, DECIMALS)
    return {name: value for name, value in found.items() if name == "value" or value}
