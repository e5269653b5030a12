"""`tta-bench compare`: our numbers beside a paper's, each with a verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

from tta_bench.describe import Description, columns
from tta_bench.errors import UserError
from tta_bench.layouts.bank import bank_mib, memory_without, vectors
from tta_bench.layouts.entries import Footnotes, entry
from tta_bench.layouts.lines import Line, lines
from tta_bench.layouts.plan import Measure, Spec, accuracy, fact, per_image
from tta_bench.layouts.records import Record, Slot, read, slots
from tta_bench.layouts.types import Column
from tta_bench.reference import Published, Reference, cell_of

if TYPE_CHECKING:
    from pandas import DataFrame

Verdict = Literal["within", "off", "not run"]
VERDICTS: tuple[Verdict, ...] = ("within", "off", "not run")


@dataclass(frozen=True)
class Tolerance:
    """How far a number may be from the published one: points of accuracy, percent of all else."""

    points: float = 0.5
    percent: float = 3.0

    def allows(self, published: Published, ours: float) -> bool:
        """Whether ours is near enough; what a memory's rounding hides is not held against it."""
        limit = published.value * self.percent / 100
        if published.metric == "accuracy":
            limit = self.points
        elif published.metric.endswith("_mib"):
            limit = max(limit, published.half_step)
        return abs(ours - published.value) <= limit + 1e-9


@dataclass(frozen=True)
class Comparison:
    """One published number beside ours, which is None where there is none yet."""

    published: Published
    row: str  # what our row is called
    ours: float | None
    verdict: Verdict
    note: str

    @property
    def difference(self) -> float | None:
        """Ours minus published."""
        return None if self.ours is None else self.ours - self.published.value


def compare(
    frame: DataFrame, reference: Reference, tolerance: Tolerance, table: str = "*"
) -> list[Comparison]:
    """Every published number that one of our cells gives or is to give, in the order of the paper."""
    records = [record.on(record.data) for record in read(frame)]
    judge = _Judge(records, reference, tolerance)
    apart = [line.narrowed([data]) for line in lines("compare", records) for data in _data(line)]
    wanted = [row for row in reference.rows if fnmatchcase(row.table, table)]
    if not wanted:
        known = ", ".join(dict.fromkeys(row.table for row in reference.rows))
        raise UserError(f"--table {table}: {reference.name} has no such table. There are: {known}.")
    pairs = ((row, line) for row in wanted for line in apart)
    return [judge.judge(row, line) for row, line in pairs if row.wanted.matches(cell_of(line.records[0]))]


def _data(line: Line) -> list[str]:
    return list(dict.fromkeys(record.data for record in line.records))


class _Judge:
    """Sets published numbers and lines side by side."""

    def __init__(self, records: Sequence[Record], reference: Reference, tolerance: Tolerance) -> None:
        self.reference, self.tolerance = reference, tolerance
        without = memory_without(records)
        self.measures: dict[str, Measure] = {
            "accuracy": accuracy,
            "forwards": per_image("forwards"),
            "backwards": per_image("backwards"),
            "memory_mib": fact("memory_mib"),
            "bank_mib": lambda found: bank_mib(found, without),
            "domain_parameters": vectors,
        }

    def judge(self, row: Published, line: Line) -> Comparison:
        """A published number and ours, or the reason why there is none."""
        label = " ".join(part for part in (line.group.model, line.group.bits, *line.row[:2]) if part)
        scope = self._scope(row, line)
        shortfall = self._shortfall(row, scope)
        footnotes = Footnotes()
        found = entry(line, self._spec(row, scope), scope, footnotes)
        if shortfall or found.value is None:
            told = footnotes.texts if found.value is None else [shortfall]
            return Comparison(row, label, None, "not run", "; ".join(told))
        ours = float(found.value)
        verdict: Verdict = "within" if self.tolerance.allows(row, ours) else "off"
        return Comparison(row, label, ours, verdict, "; ".join(self._caveats(row, line)))

    def _spec(self, row: Published, scope: Sequence[Slot]) -> Spec:
        """The number to take from a line."""
        kept = row.wanted.settings.get("bank_policy") == "keep_all"  # grows as long as the stream goes on
        known = row.metric == "memory_mib" or (row.metric == "bank_mib" and not kept)
        column = Column(row.metric, row.metric, "count")
        return Spec(column, self.measures[row.metric], frozenset(scope).__contains__, fact=known)

    def _scope(self, row: Published, line: Line) -> list[Slot]:
        """The places in the stream that a number is about."""
        found = slots(line.records)
        if row.metric != "accuracy":
            return found
        if row.wanted.domains:
            severity = self.reference.severity
            found = [s for s in found if s.corruption in row.wanted.domains and s.severity == severity]
        if row.round == "all":
            return found
        last = max((slot.round for slot in found), default=0)
        round_ = last if row.round == "reset" else row.round
        return [slot for slot in found if slot.round == round_]

    def _shortfall(self, row: Published, scope: Sequence[Slot]) -> str:
        """What an accuracy of ours would leave out, or nothing."""
        if row.metric != "accuracy":
            return ""
        rounds = self.reference.rounds if row.round == "all" else 1
        wanted = rounds * max(1, len(row.wanted.domains))
        return f"{len(scope)} of {wanted} domains" if len(scope) < wanted else ""

    def _caveats(self, row: Published, line: Line) -> Iterator[str]:
        """What is different about ours, and what is odd about theirs."""
        if row.metric == "accuracy":
            images = max(record.n or 0 for record in line.records)
            if images < row.wanted.images:
                yield f"{images} of {row.wanted.images} images a domain"
            if line.records[0].data in self.reference.stand_ins:
                yield "corruptions regenerated, not the published files"
        if row.note:
            yield row.note


def describe(found: Sequence[Comparison], reference: Reference, tolerance: Tolerance) -> Description:
    """All comparisons as a table, and how many there are of each verdict."""
    counts = Counter(comparison.verdict for comparison in found)
    rows = [_row(comparison) for comparison in found]
    head = (
        f"{reference.title}: {len(reference.rows)} numbers, {len(found)} of them of these cells: "
        f"{', '.join(f'{counts[verdict]} {verdict}' for verdict in VERDICTS)}.\n"
        f"Within: {tolerance.points:g} points of accuracy, {tolerance.percent:g} % of all else."
    )
    data = {"reference": reference.name, "verdicts": {v: counts[v] for v in VERDICTS}, "cells": rows}
    return Description("\n\n".join([head, columns(_texts(rows))]), data)


def _row(found: Comparison) -> dict[str, Any]:
    row = found.published
    return {
        "table": row.table,
        "cell": found.row,
        "published as": row.method,
        "round": row.round or "",
        "column": row.column,
        "metric": row.metric,
        "ours": found.ours,
        "published": row.value,
        "difference": found.difference,
        "verdict": found.verdict,
        "note": found.note,
    }


def _texts(rows: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """Rows for people: numbers that were not run, in one line for each cell, reason and table."""
    found: list[dict[str, str]] = []
    for same, members in groupby(rows, key=_awaited):
        if same is None:
            found += [_text(row) for row in members]
        else:
            first, *others = members
            rest = {"round": "", "column": f"{1 + len(others)} numbers", "metric": "", "published": ""}
            found.append(_text(first) | (rest if others else {}))
    return found


def _awaited(row: dict[str, Any]) -> tuple[str, ...] | None:
    """What rows that were not run have in common; None for those that were."""
    return None if row["ours"] is not None else (row["table"], row["cell"], row["published as"], row["note"])


def _text(row: dict[str, Any]) -> dict[str, str]:
    """A row for people: numbers as the paper prints them, memory differences also in percent."""
    decimals = 2 if row["metric"] == "bank_mib" else 1
    shown = {k: "–" if row[k] is None else f"{row[k]:.{decimals}f}" for k in ("ours", "published")}
    difference = row["difference"]
    shown["difference"] = "" if difference is None else f"{difference:+.{decimals}f}"
    if row["metric"] == "memory_mib" and difference is not None:
        shown["difference"] += f" ({100 * difference / row['published']:+.1f} %)"
    return {name: str(value) for name, value in (row | shown).items()}
