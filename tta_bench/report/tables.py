"""A Table as the page holds it: numbers as printed, and its LaTeX and CSV in pieces.

The page leaves out and reorders rows; it never writes LaTeX or CSV of its own, it picks from these pieces.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tta_bench.render import render
from tta_bench.render.data import DECIMALS
from tta_bench.render.numbers import number
from tta_bench.table import Column, Entry, Row, RowGroup, Table

MULTIROW = re.compile(r"\\multirow\{\d+\}\{\*\}(\{.*\})")


class RowKey(NamedTuple):
    """What makes a row of the page: the same in every table, in frame and records."""

    model: str
    quantizer: str
    bits: str
    stream: str
    method: str
    variant: str
    reset: str
    version: str
    settings: str


def key_of(group: RowGroup, row: Row) -> RowKey:
    """The key of a table's row."""
    place = (group.model, group.quantizer, group.bits, group.stream)
    return RowKey(*place, row.method, row.variant, row.reset, row.version, row.settings)


def packed(table: Table, places: Mapping[RowKey, int]) -> dict[str, Any]:
    """A table as plain data; each of its rows says by number which row of the page it is."""
    return {
        "layout": table.layout,
        "caption": table.caption,
        "marks": table.marks,
        "notes": table.notes,
        "footnotes": table.footnotes,
        "columns": [vars(column) for column in table.columns],
        "rows": list(_rows(table, places)),
        "latex": _latex(table),
        "csv": list(csv.reader(io.StringIO(render(table, "csv")))),
    }


def _rows(table: Table, places: Mapping[RowKey, int]) -> Iterator[dict[str, Any]]:
    for group in table.groups:
        for row in group.rows:
            if not row.published:  # what is, follows the row of ours that it is about
                place = places[key_of(group, row)]
            yield _row(table, row, place)


def _row(table: Table, row: Row, place: int) -> dict[str, Any]:
    pairs = zip(row.entries, table.columns, strict=True)
    return {
        "row": place,
        "label": row.label,
        "published": row.published,
        "marks": row.marks,
        "entries": [_entry(entry, column) for entry, column in pairs],
    }


def _entry(entry: Entry, column: Column) -> dict[str, Any]:
    """A number with its text; what is absent or false is left out."""
    found: dict[str, Any] = {"marks": entry.marks, "best": entry.best, "rank": entry.rank}
    if isinstance(entry.value, bool):
        found |= {"value": entry.value, "text": "✓" if entry.value else "✗"}
    elif entry.value is not None:
        text, spread = number(entry, column)
        found |= {"value": round(entry.value, DECIMALS), "text": text, "spread": spread}
        if entry.interval is not None:
            found["interval"] = round(entry.interval, DECIMALS)
    return {name: value for name, value in found.items() if name == "value" or value}


def _latex(table: Table) -> dict[str, Any]:
    """The lines of a table's LaTeX, cut where the page chooses among rows and footnotes."""
    lines = render(table, "latex").rstrip("\n").split("\n")
    start, end = lines.index(r"\midrule"), lines.index(r"\bottomrule")
    first_note, last_note = end + 5, end + 5 + len(table.footnotes)
    noted = bool(table.footnotes or table.notes)
    labels, rows = [], []
    for line in lines[start:end]:
        if line == r"\midrule":
            continue
        if not line.startswith("& "):  # the first of a group; within a name, & is \&
            first, _, line = line.partition(" & ")
            label, line = MULTIROW.sub(r"\1", first), f"& {line}"
        labels.append(label)
        rows.append(line)
    return {
        "head": lines[:start],
        "labels": labels,
        "rows": rows,
        "close": lines[end : end + 3],
        "open": lines[end + 3 : end + 5] if noted else [],
        "footnotes": lines[first_note:last_note],
        "notes": lines[last_note:-2] if noted else [],
        "shut": lines[-2:-1] if noted else [],
        "last": lines[-1],
    }
