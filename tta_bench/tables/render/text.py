"""GitHub Markdown, and plain text for a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from tabulate import SEPARATING_LINE, tabulate

from tta_bench.tables.render.numbers import Markup
from tta_bench.tables.table import Table
from tta_bench.terminal import printable

SUPERSCRIPTS = str.maketrans("0123456789,", "⁰¹²³⁴⁵⁶⁷⁸⁹·")
HTML = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
Escape = Callable[[str], str]


def _superscript(text: str) -> str:
    return text.translate(SUPERSCRIPTS)


MARKDOWN = Markup("**{}**", "*{}*", _superscript)
TERMINAL = Markup("*{}", "({})", _superscript)


def to_markdown(table: Table) -> str:
    """The table as Markdown: the best and its ties in bold, published numbers in italics."""
    header = _header(table, _escape, "<br>")
    rows = [row for group in _groups(table, _escape, MARKDOWN) for row in group]
    align = ["left", "left", *["right"] * len(table.columns)]
    body = tabulate(rows, header, tablefmt="pipe", disable_numparse=True, colalign=align)
    caption = f"**{_escape(table.caption)}**{MARKDOWN.mark(table.marks)}"
    # Blank lines, as Markdown would join the lines otherwise.
    return "\n\n".join([caption, body, *MARKDOWN.foot(table, _escape)]) + "\n"


def to_text(table: Table) -> str:
    """The table for a terminal: the best and its ties with a star, published numbers in brackets."""
    return "\n".join([caption(table), "", body(table), "", *foot(table)]).rstrip() + "\n"


def caption(table: Table) -> str:
    """The caption for a terminal, with its footnote marks."""
    return printable(table.caption) + TERMINAL.mark(table.marks)


def body(table: Table, narrow: bool = False) -> str:
    """Header and rows for a terminal; `narrow` puts every word of a header on a line of its own."""
    rows: list[list[str] | str] = []
    for group in _groups(table, printable, TERMINAL):
        rows += [SEPARATING_LINE, *group] if rows else group
    align = ["left", "left", *["right"] * len(table.columns)]
    header = _header(table, printable, "\n")
    if narrow:
        header = ["\n".join(name.split()) for name in header]
    return tabulate(rows, header, tablefmt="simple", disable_numparse=True, colalign=align)


def foot(table: Table) -> list[str]:
    """Footnotes and notes for a terminal, one a line."""
    best = any(entry.best for _, row in table.rows for entry in row.entries)
    legend = ["* before a number: the best of its group, or tied with it."] if best else []
    return [*TERMINAL.foot(table, printable), *legend]


def _escape(text: str) -> str:
    """The text escaped for Markdown."""
    text = re.sub(r"[\\`*_{}\[\]|~]", r"\\\g<0>", " ".join(text.split()))
    return re.sub(r"[&<>]", lambda match: HTML[match[0]], text)


def _header(table: Table, escape: Escape, newline: str) -> list[str]:
    """The names of the columns, each below the name of its group."""
    names = [(escape(c.group) + newline if c.group else "") + escape(c.name) for c in table.columns]
    return ["Model", "Method", *names]


def _groups(table: Table, escape: Escape, markup: Markup) -> Iterable[list[list[str]]]:
    """The rows of each group as texts; only the first has the label."""
    for group in table.groups:
        yield [
            [
                "" if index else escape(group.label),
                (markup.published if row.published else "{}").format(escape(row.label))
                + markup.mark(row.marks),
                *markup.entries(row, table.columns),
            ]
            for index, row in enumerate(group.rows)
        ]
