"""`tta-bench compare`: our numbers and those of a paper, each pair with a verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

from tta_bench.description import Description, columns
from tta_bench.errors import UserError
from tta_bench.tables.assembly.entries import Footnotes, entry
from tta_bench.tables.assembly.layout_spec import ColumnSpec, Measure, accuracy, memory_mib, per_image
from tta_bench.tables.assembly.published import cell_of
from tta_bench.tables.assembly.records import Slot, TidyRecord, read, slots
from tta_bench.tables.assembly.row_records import RowRecords, by_row
from tta_bench.tables.layouts.bank import bank_mib, memory_without, vectors
from tta_bench.tables.reference import Published, Reference
from tta_bench.tables.table import Column

if TYPE_CHECKING:
    from pandas import DataFrame

Verdict = Literal["within", "off", "not run"]
VERDICTS: tuple[Verdict, ...] = ("within", "off", "not run")


@dataclass(frozen=True)
class Tolerance:
    """How far a number may be from the published one: in points of accuracy, in percent otherwise."""

    points: float = 0.5
    percent: float = 3.0

    def allows(self, published: Published, ours: float) -> bool:
        """Whether our number is close enough; the rounding of a published memory is allowed for."""
        limit = published.value * self.percent / 100
        if published.metric == "accuracy":
            limit = self.points
        elif published.metric.endswith("_mib"):
            limit = max(limit, published.half_step)
        return abs(ours - published.value) <= limit + 1e-9


@dataclass(frozen=True)
class Comparison:
    """A published number and ours, which is None if the cell has not run."""

    published: Published
    row: str  # label of our row
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
    """Every published number that belongs to one of our cells, run or pending, in the order of the paper."""
    records = [record.on(record.data) for record in read(frame)]
    judge = _Judge(records, reference, tolerance)
    rows = [row.narrowed([data]) for row in by_row("compare", records) for data in _data(row)]
    numbers = [each for each in reference.rows if fnmatchcase(each.table, table)]
    if not numbers:
        known = ", ".join(dict.fromkeys(each.table for each in reference.rows))
        raise UserError(f"--table {table}: {reference.name} has no such table. There are: {known}.")
    pairs = ((published, row) for published in numbers for row in rows)
    return [judge.judge(p, row) for p, row in pairs if p.wanted.matches(cell_of(row.records[0]))]


def _data(row: RowRecords) -> list[str]:
    return list(dict.fromkeys(record.data for record in row.records))


class _Judge:
    """Compares published numbers with rows of ours."""

    def __init__(self, records: Sequence[TidyRecord], reference: Reference, tolerance: Tolerance) -> None:
        self.reference, self.tolerance = reference, tolerance
        without = memory_without(records)
        self.measures: dict[str, Measure] = {
            "accuracy": accuracy,
            "forwards": per_image("forwards"),
            "backwards": per_image("backwards"),
            "memory_mib": memory_mib,
            "bank_mib": lambda found: bank_mib(found, without),
            "domain_parameters": vectors,
        }

    def judge(self, published: Published, row: RowRecords) -> Comparison:
        """A published number and ours, or the reason why there is none."""
        label = " ".join(part for part in (row.group.model, row.group.bits, *row.id[:2]) if part)
        scope = self._scope(published, row)
        missing = self._missing(published, scope)
        footnotes = Footnotes()
        found = entry(row, self._spec(published, scope), scope, footnotes)
        if missing or found.value is None:
            reasons = footnotes.texts if found.value is None else [missing]
            return Comparison(published, label, None, "not run", "; ".join(reasons))
        ours = float(found.value)
        verdict: Verdict = "within" if self.tolerance.allows(published, ours) else "off"
        return Comparison(published, label, ours, verdict, "; ".join(self._caveats(published, row)))

    def _spec(self, published: Published, scope: Sequence[Slot]) -> ColumnSpec:
        """The column whose number in a row is compared."""
        kept = published.wanted.settings.get("bank_policy") == "keep_all"  # grows with the stream
        known = published.metric == "memory_mib" or (published.metric == "bank_mib" and not kept)
        column = Column(published.metric, published.metric, "count")
        return ColumnSpec(column, self.measures[published.metric], frozenset(scope).__contains__, fact=known)

    def _scope(self, published: Published, row: RowRecords) -> list[Slot]:
        """The slots of a row that a published number covers."""
        found = slots(row.records)
        if published.metric != "accuracy":
            return found
        if published.wanted.domains:
            severity = self.reference.severity
            found = [s for s in found if s.corruption in published.wanted.domains and s.severity == severity]
        if published.round == "all":
            return found
        last = max((slot.round for slot in found), default=0)
        round_ = last if published.round == "reset" else published.round
        return [slot for slot in found if slot.round == round_]

    def _missing(self, published: Published, scope: Sequence[Slot]) -> str:
        """Which domains our accuracy would lack; empty if none."""
        if published.metric != "accuracy":
            return ""
        rounds = self.reference.rounds if published.round == "all" else 1
        wanted = rounds * max(1, len(published.wanted.domains))
        return f"{len(scope)} of {wanted} domains" if len(scope) < wanted else ""

    def _caveats(self, published: Published, row: RowRecords) -> Iterator[str]:
        """How our number differs from the published setting, and the note on the published one."""
        if published.metric == "accuracy":
            images = max(record.n or 0 for record in row.records)
            if images < published.wanted.images:
                yield f"{images} of {published.wanted.images} images per domain"
            if row.records[0].data in self.reference.stand_ins:
                yield "corruptions regenerated, not the published files"
        if published.note:
            yield published.note


def summarize(found: Sequence[Comparison], reference: Reference, tolerance: Tolerance) -> Description:
    """All comparisons as a table, and the number of each verdict."""
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
    """Rows for readers; numbers that were not run share one line per cell, reason and table."""
    found: list[dict[str, str]] = []
    for same, members in groupby(rows, key=_not_run):
        if same is None:
            found += [_text(row) for row in members]
        else:
            first, *others = members
            rest = {"round": "", "column": f"{1 + len(others)} numbers", "metric": "", "published": ""}
            found.append(_text(first) | (rest if others else {}))
    return found


def _not_run(row: dict[str, Any]) -> tuple[str, ...] | None:
    """The key by which rows that were not run are joined; None for rows that were run."""
    return None if row["ours"] is not None else (row["table"], row["cell"], row["published as"], row["note"])


def _text(row: dict[str, Any]) -> dict[str, str]:
    """A row for readers: numbers as the paper prints them, memory differences also in percent."""
    decimals = 2 if row["metric"] == "bank_mib" else 1
    shown = {k: "–" if row[k] is None else f"{row[k]:.{decimals}f}" for k in ("ours", "published")}
    difference = row["difference"]
    shown["difference"] = "" if difference is None else f"{difference:+.{decimals}f}"
    if row["metric"] == "memory_mib" and difference is not None:
        shown["difference"] += f" ({100 * difference / row['published']:+.1f} %)"
    return {name: str(value) for name, value in (row | shown).items()}
