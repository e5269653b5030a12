"""What a table is: plain data, without a word on how it is printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tta_bench.errors import UserError

Kind = Literal["accuracy", "count", "memory", "flag", "rank", "difference"]


class TableError(UserError, ValueError):
    """A table that cannot be made honestly: where, what is wrong, and what to do."""

    def __init__(self, place: str, problem: str, remedy: str) -> None:
        super().__init__(f"{place}: {problem}. {remedy}")
        self.place = place
        self.problem = problem
        self.remedy = remedy


@dataclass(frozen=True)
class Entry:
    """One number, tick or dash; not a "cell", which is a run of the benchmark."""

    value: float | bool | None = None  # None is a dash
    std: float | None = None  # over seeds; None when there is one seed, or for a count
    interval: float | None = None  # half the 95 % interval of the mean; None where there is too little data
    low: float | None = None  # the 95 % interval of a difference, and its p-value
    high: float | None = None
    p: float | None = None
    seeds: int = 0
    best: bool = False  # the best of its group, or tied with it
    rank: str = ""  # within its group; "1=" is shared
    marks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Column:
    """A column: `key` for machines, `name` for readers; one `group` is one header above several."""

    key: str
    name: str
    kind: Kind
    group: str = ""


@dataclass(frozen=True)
class Row:
    """One method on one quantised model; `label` is what readers see."""

    label: str
    method: str
    variant: str
    reset: str
    version: str
    entries: tuple[Entry, ...]
    marks: tuple[int, ...] = ()
    published: bool = False  # not ours: what a paper says of the row above
    settings: str = ""  # in what it differs from rows of the same name, mixed on request


@dataclass(frozen=True)
class RowGroup:
    """The rows of one quantised model, within which the best number is sought."""

    label: str
    model: str
    quantizer: str
    bits: str
    rows: tuple[Row, ...]
    stream: str = ""  # severity or batch size, where a benchmark has several


@dataclass(frozen=True)
class Table:
    """A whole table; footnote mark `k` refers to `footnotes[k - 1]`, `notes` carry no mark."""

    layout: str
    label: str  # to refer to it
    caption: str
    columns: tuple[Column, ...]
    groups: tuple[RowGroup, ...]
    footnotes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    marks: tuple[int, ...] = ()  # of the caption


def printed(value: float, kind: Kind) -> str:
    """A number as every human-readable format shows it."""
    if kind == "accuracy":
        return f"{value:.1f}"
    if kind == "difference":
        return f"{value:+.2f}".replace("-", "−")
    if kind == "rank":
        return f"{value:.0f}"
    if kind == "count":
        text = f"{value:.1f}"
        return text.removesuffix(".0")
    # Models from kilobytes to gigabytes share this column: about three significant digits.
    decimals = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{decimals}f}"


def spans(columns: tuple[Column, ...]) -> list[tuple[str, int]]:
    """Neighbouring columns of one group, as (group, how many)."""
    found: list[tuple[str, int]] = []
    for column in columns:
        if found and found[-1][0] == column.group:
            found[-1] = (column.group, found[-1][1] + 1)
        else:
            found.append((column.group, 1))
    return found
