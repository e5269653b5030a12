"""HTML: one `<table>` that stands by itself, with caption, foot, and scopes for screen readers."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from tta_bench.layouts.types import spans
from tta_bench.render.numbers import beside, number
from tta_bench.table import Column, Entry, Row, RowGroup, Table

LABELS = 2  # Model and Method come before the columns


def to_html(table: Table) -> str:
    """The table as HTML; looks are left to the page's style sheet."""
    lines = [
        f'<table class="tta-bench {escape(table.layout)}">',
        f"<caption>{escape(table.caption)}{_marks(table.marks)}</caption>",
        "<thead>",
        *_header(table.columns),
        "</thead>",
        *(line for group in table.groups for line in _group(group, table.columns)),
        *_foot(table),
        "</table>",
    ]
    return "\n".join(lines) + "\n"


def _header(columns: tuple[Column, ...]) -> Iterable[str]:
    """One line of names or, where columns are grouped, two."""
    found = spans(columns)
    grouped = any(group for group, _ in found)
    rows = ' rowspan="2"' if grouped else ""
    labels = "".join(f'<th scope="col"{rows}>{name}</th>' for name in ("Model", "Method"))
    names = "".join(f'<th scope="col">{escape(c.name)}</th>' for c in columns)
    if not grouped:
        yield f"<tr>{labels}{names}</tr>"
        return
    groups = "".join(f'<th scope="colgroup" colspan="{n}">{escape(g)}</th>' for g, n in found)
    yield f"<tr>{labels}{groups}</tr>"
    yield f"<tr>{names}</tr>"


def _group(group: RowGroup, columns: tuple[Column, ...]) -> Iterable[str]:
    """The rows of a group, its label beside them all."""
    yield "<tbody>"
    for index, row in enumerate(group.rows):
        rows = f'<th scope="rowgroup" rowspan="{len(group.rows)}">{escape(group.label)}</th>'
        label = f'<th scope="row">{escape(row.label)}{_marks(row.marks)}</th>'
        pairs = zip(row.entries, columns, strict=True)
        entries = "".join(f"<td{_rank(entry)}>{_entry(entry, column, row)}</td>" for entry, column in pairs)
        kind = ' class="published"' if row.published else ""
        yield f"<tr{kind}>{'' if index else rows}{label}{entries}</tr>"
    yield "</tbody>"


def _entry(entry: Entry, column: Column, row: Row) -> str:
    """One entry; the best and its ties are strong, what is published is set apart."""
    if entry.value is None:
        return "" if row.published else "–" + _marks(entry.marks)
    if isinstance(entry.value, bool):
        return "✓" if entry.value else "✗"
    mean, spread = number(entry, column)[0], escape(beside(entry, column))
    mean = f"<strong>{mean}</strong>" if entry.best else f"<em>{mean}</em>" if row.published else mean
    return (f"{mean} <small>{spread}</small>" if spread else mean) + _marks(entry.marks)


def _rank(entry: Entry) -> str:
    """The rank as an attribute: for scripts, and for a reader's pointer."""
    return f' data-rank="{entry.rank}" title="rank {entry.rank}"' if entry.rank else ""


def _marks(marks: Iterable[int]) -> str:
    """Footnote marks."""
    text = ",".join(map(str, marks))
    return f"<sup>{text}</sup>" if text else ""


def _foot(table: Table) -> Iterable[str]:
    """Footnotes and notes, each over the whole width."""
    texts = [f"{_marks([k])} {escape(text)}" for k, text in enumerate(table.footnotes, start=1)]
    texts += [escape(" ".join(table.notes))] if table.notes else []
    if texts:
        width = LABELS + len(table.columns)
        yield "<tfoot>"
        yield from (f'<tr><td colspan="{width}">{text}</td></tr>' for text in texts)
        yield "</tfoot>"
