"""Tables to read as they are: GitHub Markdown, and plain text for a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tabulate import SEPARATING_LINE, tabulate

from tta_bench.render.numbers import beside, number
from tta_bench.table import Column, Entry, Row, Table
from tta_bench.terminal import printable

SUPERSCRIPTS = str.maketrans("0123456789,", "⁰¹²³⁴⁵⁶⁷⁸⁹·")
HTML = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
Escape = Callable[[str], str]


class Looks(NamedTuple):
    """How the best number and its ties look, and one that is not ours."""

    best: str
    published: str


def to_markdown(table: Table) -> str:
    """The table as GitHub shows it: the best and its ties in bold, what is published in italics."""
    header = _header(table, _escape, "<br>")
    rows = [row for group in _groups(table, _escape, Looks("**{}**", "*{}*")) for row in group]
    align = ["left", "left", *["right"] * len(table.columns)]
    body = tabulate(rows, header, tablefmt="pipe", disable_numparse=True, colalign=align)
    caption = f"**{_escape(table.caption)}**{_marks(table.marks)}"
    # Blank lines, as Markdown would run single ones together.
    return "\n\n".join([caption, body, *_foot(table, _escape)]) + "\n"


def to_text(table: Table) -> str:
    """The table for a terminal: the best and its ties with a star, what is published in brackets."""
    rows: list[list[str] | str] = []
    for group in _groups(table, printable, Looks("*{}", "({})")):
        rows += [SEPARATING_LINE, *group] if rows else group
    align = ["left", "left", *["right"] * len(table.columns)]
    header = _header(table, printable, "\n")
    body = tabulate(rows, header, tablefmt="simple", disable_numparse=True, colalign=align)
    best = any(e.best for group in table.groups for row in group.rows for e in row.entries)
    legend = ["* before a number: the best of its group, or tied with it."] if best else []
    foot = [*_foot(table, printable), *legend]
    return "\n".join([printable(table.caption) + _marks(table.marks), "", body, "", *foot]).rstrip() + "\n"


def _escape(text: str) -> str:
    """Text that Markdown shows as it is."""
    text = re.sub(r"[\\`*_{}\[\]|~]", r"\\\g<0>", " ".join(text.split()))
    return re.sub(r"[&<>]", lambda match: HTML[match[0]], text)


def _header(table: Table, escape: Escape, newline: str) -> list[str]:
    """The names of the columns, each under that of its group."""
    names = [(escape(c.group) + newline if c.group else "") + escape(c.name) for c in table.columns]
    return ["Model", "Method", *names]


def _groups(table: Table, escape: Escape, looks: Looks) -> Iterable[list[list[str]]]:
    """Per group its rows as texts; the label stands in the first only."""
    for group in table.groups:
        yield [
            [
                "" if index else escape(group.label),
                (looks.published if row.published else "{}").format(escape(row.label)) + _marks(row.marks),
                *(_entry(e, c, row, looks) for e, c in zip(row.entries, table.columns, strict=True)),
            ]
            for index, row in enumerate(group.rows)
        ]


def _entry(entry: Entry, column: Column, row: Row, looks: Looks) -> str:
    """One entry; a published row is empty where nothing is published."""
    if entry.value is None:
        return "" if row.published else "–" + _marks(entry.marks)
    if isinstance(entry.value, bool):
        return "✓" if entry.value else "✗"
    mean, spread = number(entry, column)[0], beside(entry, column)
    mean = (looks.best if entry.best else looks.published if row.published else "{}").format(mean)
    return (f"{mean} {spread}" if spread else mean) + _marks(entry.marks)


def _marks(marks: Iterable[int]) -> str:
    """Footnote marks, as superscript figures that need no markup."""
    return ",".join(map(str, marks)).translate(SUPERSCRIPTS)


def _foot(table: Table, escape: Escape) -> list[str]:
    """Footnotes and notes, one a line."""
    numbered = [f"{_marks([k])} {escape(text)}" for k, text in enumerate(table.footnotes, start=1)]
    return [*numbered, *([escape(" ".join(table.notes))] if table.notes else [])]
