"""Tables for machines: CSV with a flat header, JSON with the table's structure. A dash is empty."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from tta_bench.table import Entry, Row, RowGroup, Table
from tta_bench.terminal import printable

LABELS = ("model", "quantizer", "bits", "method", "variant", "reset", "version")  # before the columns
LAST = ("origin", "footnotes")  # after them
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # with which a spreadsheet begins a formula
DECIMALS = 4  # below this, summing in another order shows
# Of an entry's fields, in CSV headers.
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
    """One line per row; columns such as `…_std`, `…_ci95` and `…_rank` only where any row has one."""
    fields = [_filled(table, i) for i in range(len(table.columns))]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    header = [*LABELS, *(("stream",) if _streams(table) else ())]
    for column, names in zip(table.columns, fields, strict=True):
        key = f"{column.key}_{column.kind}" if column.key in (*header, *LAST) else column.key
        header += [key if column.kind == "rank" else key + SUFFIXES[name] for name in names]
    writer.writerow(map(_harmless, [*header, *LAST]))
    for group in table.groups:
        writer.writerows(_line(table, group, row, fields) for row in group.rows)
    return out.getvalue()


def _filled(table: Table, index: int) -> list[str]:
    """The fields of a column's entries that any row has; the value always, which of a rank is its text."""
    if table.columns[index].kind == "rank":
        return ["rank"]
    entries = [row.entries[index] for group in table.groups for row in group.rows]
    return [n for n in SUFFIXES if n == "value" or any(getattr(e, n) not in (None, "") for e in entries)]


def _line(table: Table, group: RowGroup, row: Row, fields: list[list[str]]) -> list[str]:
    """One line of CSV; its footnotes are spelled out, as there is no foot to put them."""
    line = [group.model, group.quantizer, group.bits]
    line += [row.method, row.variant, row.reset, row.version]
    line = [_harmless(text) for text in [*line, *((group.stream,) if _streams(table) else ())]]
    for entry, names in zip(row.entries, fields, strict=True):
        line += [_plain(getattr(entry, name)) for name in names]
    line.append("published" if row.published else "ours")
    marks = {*table.marks, *row.marks, *(mark for entry in row.entries for mark in entry.marks)}
    line.append(_harmless(" | ".join(table.footnotes[mark - 1] for mark in sorted(marks))))
    return list(map(printable, line))  # a carriage return would end the line for some readers


def _streams(table: Table) -> bool:
    return any(group.stream for group in table.groups)


def _harmless(text: str) -> str:
    """A name that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(FORMULA) else text


def _plain(value: float | bool | str | None) -> str:
    """A number for machines; a rank as it is."""
    if value is None or isinstance(value, str):
        return value or ""
    return str(value).lower() if isinstance(value, bool) else f"{value:.{DECIMALS}f}"


def to_json(table: Table) -> str:
    """The whole table, entries by column key; marks are footnote numbers, counted from 1."""
    content = {
        "layout": table.layout,
        "label": table.label,
        "caption": table.caption,
        "marks": table.marks,
        "columns": [vars(column) for column in table.columns],
        "groups": [
            {
                "label": group.label,
                "model": group.model,
                "quantizer": group.quantizer,
                "bits": group.bits,
                "stream": group.stream,
                "rows": [_row(table, row) for row in group.rows],
            }
            for group in table.groups
        ],
        "footnotes": table.footnotes,
        "notes": table.notes,
    }
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _row(table: Table, row: Row) -> dict[str, Any]:
    """A row as JSON has it."""
    keys = [column.key for column in table.columns]
    return vars(row) | {"entries": dict(zip(keys, map(_entry, row.entries), strict=True))}


def _entry(entry: Entry) -> dict[str, Any]:
    """An entry as JSON has it, rounded as in CSV."""
    return vars(entry) | {name: _rounded(getattr(entry, name)) for name in SUFFIXES}


def _rounded(value: float | bool | str | None) -> float | bool | str | None:
    """A number with as many decimals as CSV prints; ticks, dashes and ranks as they are."""
    return round(value, DECIMALS) if isinstance(value, float) else value
