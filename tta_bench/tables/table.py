"""A table as plain data, independent of how it is printed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from tta_bench.errors import UserError

# A "score" is a percentage without interval and rank.
Kind = Literal["accuracy", "score", "count", "memory", "time", "flag", "rank", "difference"]


class TableError(UserError, ValueError):
    """A table that cannot be built: place, problem and remedy."""

    def __init__(self, place: str, problem: str, remedy: str) -> None:
        super().__init__(f"{place}: {problem}. {remedy}")
        self.place = place
        self.problem = problem
        self.remedy = remedy


@dataclass(frozen=True)
class TableEntry:
    """One number, tick or dash of a table. (A "cell" is one run of the benchmark.)"""

    value: float | bool | None = None  # None: a dash
    std: float | None = None  # over seeds, or orders of domains; None for one, and for counts
    interval: float | None = None  # half the 95 % interval of the mean; None with too little data
    low: float | None = None  # low, high, p: the 95 % interval of a difference and its p-value
    high: float | None = None
    p: float | None = None
    seeds: int = 0
    best: bool = False  # the best of its group, or tied with it
    rank: str = ""  # within its group; "1=" is shared
    marks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Column:
    """A column: `key` for programs, `name` for readers; columns of one `group` share a header."""

    key: str
    name: str
    kind: Kind
    group: str = ""


@dataclass(frozen=True)
class Row:
    """One method on one quantised model; `label` is for readers."""

    label: str
    method: str
    variant: str
    reset: str
    version: str
    entries: tuple[TableEntry, ...]
    marks: tuple[int, ...] = ()
    published: bool = False  # numbers of a paper for the row above
    settings: str = ""  # that distinguish it from rows of the same method, if mixing is allowed


@dataclass(frozen=True)
class RowGroup:
    """The rows of one quantised model; ranks and the best number are within a group."""

    label: str
    model: str
    quantizer: str
    bits: str
    rows: tuple[Row, ...]
    stream: str = ""  # severity or batch size, if the benchmark has several


@dataclass(frozen=True)
class Table:
    """A whole table; mark `k` refers to `footnotes[k - 1]`; `notes` have no marks."""

    layout: str
    label: str  # for \ref in LaTeX
    caption: str
    columns: tuple[Column, ...]
    groups: tuple[RowGroup, ...]
    footnotes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    marks: tuple[int, ...] = ()  # of the caption

    @property
    def rows(self) -> list[tuple[RowGroup, Row]]:
        """All rows, each with its group."""
        return [(group, row) for group in self.groups for row in group.rows]


def printed(value: float, kind: Kind) -> str:
    """A number as all formats for readers print it."""
    if kind in ("accuracy", "score"):
        return f"{value:.1f}"
    if kind == "difference":
        return f"{value:+.2f}".replace("-", "−")
    if kind == "rank":
        return f"{value:.0f}"
    if kind == "count":
        return f"{value:.1f}".removesuffix(".0")
    # Memory and time range over orders of magnitude: about three significant digits.
    decimals = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{decimals}f}"


def spans(columns: tuple[Column, ...]) -> list[tuple[str, int]]:
    """Runs of neighbouring columns of one group, as (group, number of columns)."""
    return [(group, len(list(run))) for group, run in groupby(columns, key=lambda column: column.group)]
