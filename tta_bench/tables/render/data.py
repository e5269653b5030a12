"""Tables for programs: CSV with a flat header, JSON with the structure of the table. A dash is empty."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from tta_bench.tables.table import Row, RowGroup, Table, TableEntry
from tta_bench.terminal import printable

LABELS = ("model", "quantizer", "bits", "method", "variant", "reset", "version")  # before the columns
LAST = ("origin", "footnotes")  # after them
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # the first characters of a formula in a spreadsheet
DECIMALS = 4  # further digits depend on the order of summation
# The fields of an entry, and their suffixes in CSV headers.
SUFFIXES = {
    "value": "",
    "std": "_std",
    "interval": "_ci95",
    "low": "_low",
    "high": "_high",
    "p": "_p",
    "rank": "_rank",
}


def to_csv(table: Table) -> str:
    """One line per row; columns such as `…_std`, `…_ci95` and `…_rank` only if any row has a value."""
    fields = [_filled(table, i) for i in range(len(table.columns))]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    header = [*LABELS, *(("stream",) if _streams(table) else ())]
    for column, names in zip(table.columns, fields, strict=True):
        key = f"{column.key}_{column.kind}" if column.key in (*header, *LAST) else column.key
        header += [key if column.kind == "rank" else key + SUFFIXES[name] for name in names]
    writer.writerow(map(_harmless, [*header, *LAST]))
    writer.writerows(_line(table, group, row, fields) for group, row in table.rows)
    return out.getvalue()


def _filled(table: Table, index: int) -> list[str]:
    """The fields of a column that any row has, and always the value; of a column of ranks only the rank."""
    if table.columns[index].kind == "rank":
        return ["rank"]
    entries = [row.entries[index] for _, row in table.rows]
    return [n for n in SUFFIXES if n == "value" or any(getattr(e, n) not in (None, "") for e in entries)]


def _line(table: Table, group: RowGroup, row: Row, fields: list[list[str]]) -> list[str]:
    """One line of CSV, with the text of its footnotes."""
    line = [group.model, group.quantizer, group.bits]
    line += [row.method, row.variant, row.reset, row.version]
    line = [_harmless(text) for text in [*line, *((group.stream,) if _streams(table) else ())]]
    for entry, names in zip(row.entries, fields, strict=True):
        line += [_plain(getattr(entry, name)) for name in names]
    line.append("published" if row.published else "ours")
    marks = {*table.marks, *row.marks, *(mark for entry in row.entries for mark in entry.marks)}
    line.append(_harmless(" | ".join(table.footnotes[mark - 1] for mark in sorted(marks))))
    return list(map(printable, line))  # some programs take a carriage return for the end of the line


def _streams(table: Table) -> bool:
    return any(group.stream for group in table.groups)


def _harmless(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(FORMULA) else text


def _plain(value: float | bool | str | None) -> str:
    """A value as text for programs."""
    if value is None or isinstance(value, str):
        return value or ""
    return str(value).lower() if isinstance(value, bool) else f"{value:.{DECIMALS}f}"


def to_json(table: Table) -> str:
    """The whole table, with entries by column key; marks are footnote numbers from 1."""
    content = {
        **_fields(table, "layout", "label", "caption", "marks"),
        "columns": [vars(column) for column in table.columns],
        "groups": [
            _fields(group, "label", "model", "quantizer", "bits", "stream")
            | {"rows": [_row(table, row) for row in group.rows]}
            for group in table.groups
        ],
        **_fields(table, "footnotes", "notes"),
    }
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _fields(of: Table | RowGroup, *names: str) -> dict[str, Any]:
    return {name: getattr(of, name) for name in names}


def _row(table: Table, row: Row) -> dict[str, Any]:
    """A row for JSON."""
    keys = [column.key for column in table.columns]
    return vars(row) | {"entries": dict(zip(keys, map(_entry, row.entries), strict=True))}


def _entry(entry: TableEntry) -> dict[str, Any]:
    """An entry for JSON, its numbers with the decimals of CSV."""
    found = vars(entry)
    return found | {k: round(v, DECIMALS) for k, v in found.items() if isinstance(v, float)}
