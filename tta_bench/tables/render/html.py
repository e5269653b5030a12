"""HTML: one `<table>` with caption and footnotes, and with scopes for screen readers."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from tta_bench.tables.render.numbers import Markup
from tta_bench.tables.table import Column, RowGroup, Table, TableEntry, spans

LABELS = 2  # Model and Method, before the columns
MARKUP = Markup(
    "<strong>{}</strong>",
    "<em>{}</em>",
    "<sup>{}</sup>".format,
    spread="{} <small>{}</small>",
    escape=escape,
)


def to_html(table: Table) -> str:
    """The table as HTML; the style sheet of the page decides how it looks."""
    lines = [
        f'<table class="tta-bench {escape(table.layout)}">',
        f"<caption>{escape(table.caption)}{MARKUP.mark(table.marks)}</caption>",
        "<thead>",
        *_header(table.columns),
        "</thead>",
        *(line for group in table.groups for line in _group(group, table.columns)),
        *_foot(table),
        "</table>",
    ]
    return "\n".join(lines) + "\n"


def _header(columns: tuple[Column, ...]) -> Iterable[str]:
    """One line with the names of columns, or two if columns have groups."""
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
    """The rows of a group, with its label across all rows."""
    yield "<tbody>"
    for index, row in enumerate(group.rows):
        rows = f'<th scope="rowgroup" rowspan="{len(group.rows)}">{escape(group.label)}</th>'
        label = f'<th scope="row">{escape(row.label)}{MARKUP.mark(row.marks)}</th>'
        texts = zip(map(_rank, row.entries), MARKUP.entries(row, columns), strict=True)
        entries = "".join(f"<td{rank}>{text}</td>" for rank, text in texts)
        kind = ' class="published"' if row.published else ""
        yield f"<tr{kind}>{'' if index else rows}{label}{entries}</tr>"
    yield "</tbody>"


def _rank(entry: TableEntry) -> str:
    """The rank as attributes: for scripts, and as a tooltip."""
    return f' data-rank="{entry.rank}" title="rank {entry.rank}"' if entry.rank else ""


def _foot(table: Table) -> Iterable[str]:
    """Footnotes and notes, each across all columns."""
    if texts := MARKUP.foot(table, escape):
        width = LABELS + len(table.columns)
        yield "<tfoot>"
        yield from (f'<tr><td colspan="{width}">{text}</td></tr>' for text in texts)
        yield "</tfoot>"
