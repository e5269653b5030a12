"""Numbers as text, the same in all formats for readers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from tta_bench.tables.table import Column, Row, Table, TableEntry, printed

SMALLEST_P = 0.001  # smaller p-values are printed as p<0.001


class Markup(NamedTuple):
    """How a format writes entries and marks; texts with braces are patterns for `str.format`."""

    best: str  # the best number and its ties
    published: str
    marks: Callable[[str], str]  # from the numbers of footnotes
    spread: str = "{} {}"  # mean and spread
    dash: str = "–"
    no_yes: tuple[str, str] = ("✗", "✓")
    escape: Callable[[str], str] = str  # of numbers

    def mark(self, marks: Iterable[int]) -> str:
        """Footnote marks; an empty text if there are none."""
        text = ",".join(map(str, marks))
        return self.marks(text) if text else ""

    def entry(self, entry: TableEntry, column: Column, row: Row) -> str:
        """One entry; without a published number it is empty, not a dash."""
        if entry.value is None:
            return "" if row.published else self.dash + self.mark(entry.marks)
        if isinstance(entry.value, bool):
            return self.no_yes[entry.value]
        mean, spread = self.escape(number(entry, column)[0]), self.escape(beside(entry, column))
        mean = (self.best if entry.best else self.published if row.published else "{}").format(mean)
        return (self.spread.format(mean, spread) if spread else mean) + self.mark(entry.marks)

    def entries(self, row: Row, columns: Iterable[Column]) -> list[str]:
        """All entries of a row."""
        return [self.entry(entry, column, row) for entry, column in zip(row.entries, columns, strict=True)]

    def foot(self, table: Table, escape: Callable[[str], str]) -> list[str]:
        """Footnotes and notes, one per line."""
        numbered = [f"{self.mark([k])} {escape(text)}" for k, text in enumerate(table.footnotes, start=1)]
        return [*numbered, *([escape(" ".join(table.notes))] if table.notes else [])]


def number(entry: TableEntry, column: Column) -> tuple[str, str]:
    """Mean and spread as text; the spread is empty if there is none."""
    if entry.value is None:
        return "", ""
    if entry.rank and column.kind == "rank":
        return entry.rank, ""
    spread = entry.interval
    return printed(entry.value, column.kind), "" if spread is None else printed(spread, column.kind)


def beside(entry: TableEntry, column: Column) -> str:
    """The text after a mean: its spread or, for a difference, the interval and p-value."""
    if entry.low is not None and entry.high is not None and entry.p is not None:
        low, high = (printed(bound, column.kind) for bound in (entry.low, entry.high))
        return f"[{low}, {high}] {f'p={entry.p:.3f}' if entry.p >= SMALLEST_P else f'p<{SMALLEST_P}'}"
    spread = number(entry, column)[1]
    return f"± {spread}" if spread else ""
