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
from tta_bench.tables.assembly.entries import Entries, Footnotes
from tta_bench.tables.assembly.pivot import Pivot
from tta_bench.tables.assembly.published import cell_of
from tta_bench.tables.assembly.star import star
from tta_bench.tables.layout import ColumnSpec, Measure, Options, accuracy, known, per_image
from tta_bench.tables.layouts.bank import bank_mib, vectors
from tta_bench.tables.references.reference import Identity, Published, Reference, settings_of
from tta_bench.tables.table import Column

if TYPE_CHECKING:
    from pandas import DataFrame, Series

Verdict = Literal["within", "off", "not run"]
EVERYTHING = ColumnSpec(Column("all", "all", "count"), needs=lambda slots: slots["round"] > 0)
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
    """Every published number that belongs to one of our cells, run or pending, in the order of the paper.

    A row of ours without any gets the numbers from which it differs least, with the differences.
    """
    given = star(frame, "compare", Options(allow_mixed=True))
    judge = _Judge(Pivot(given.faceted(given.cells["data"]), [EVERYTHING]), reference, tolerance)
    numbers = [each for each in reference.rows if fnmatchcase(each.table, table)]
    if not numbers:
        known = ", ".join(dict.fromkeys(each.table for each in reference.rows))
        raise UserError(f"--table {table}: {reference.name} has no such table. There are: {known}.")
    near = {place: judge.nearest(reference.rows, place) for place in judge.cells}
    return [
        judge.judge(published, *place) if near[place] == 0 else judge.differs(published, *place)
        for published in numbers
        for place in judge.cells
        if judge.distance(published, place) == near[place] is not None
    ]


def answer(frame: DataFrame, reference: Reference, tolerance: Tolerance, table: str = "*") -> Description:
    """What `compare` prints about one reference."""
    if reference.compares is not None:
        return reference.compares(frame)
    return summarize(compare(frame, reference, tolerance, table), reference, tolerance)


class _Judge:
    """Compares published numbers with rows of ours, each on one set of images, its facet."""

    def __init__(self, pivot: Pivot, reference: Reference, tolerance: Tolerance) -> None:
        self.pivot, self.reference, self.tolerance = pivot, reference, tolerance
        first = pivot.cells.drop_duplicates(["row", "facet"]).sort_values("row", kind="stable")
        self.cells: dict[tuple[int, str], Identity] = {
            (cell["row"], cell["facet"]): cell_of(cell) for cell in first.to_dict("records")
        }
        self.images = pivot.ok.groupby(["row", "facet"])["n"].max().to_dict()
        self.columns: dict[tuple[Any, ...], Entries] = {}
        self.measures: dict[str, Measure] = {
            "accuracy": accuracy,
            "forwards": per_image("forwards"),
            "backwards": per_image("backwards"),
            "memory_mib": known("memory_mib"),
            "bank_mib": bank_mib(pivot.cells),
            "domain_parameters": vectors,
        }

    def distance(self, published: Published, place: tuple[int, str]) -> int | None:
        """In how many facts a row of ours differs from a published one; None if all is different."""
        found = published.wanted.differences(self.cells[place])
        return None if found is None else len(found)

    def nearest(self, numbers: Sequence[Published], place: tuple[int, str]) -> int | None:
        """In how many facts a row of ours differs from the published row that is most like it."""
        found = (self.distance(published, place) for published in numbers)
        return min((each for each in found if each is not None), default=None)

    def differs(self, published: Published, row: int, facet: str) -> Comparison:
        """A published number for which no row of ours is right, and what is different in this one."""
        reasons = published.wanted.differences(self.cells[row, facet]) or ()
        return Comparison(published, self._label(row), None, "not run", "; ".join(reasons))

    def _label(self, row: int) -> str:
        group, id = self.pivot.rows[row]
        return " ".join(part for part in (group.model, group.bits, id.method, id.variant) if part)

    def judge(self, published: Published, row: int, facet: str) -> Comparison:
        """A published number and ours, or the reason why there is none."""
        label = self._label(row)
        column = self._column(published, row, facet)
        missing, footnotes = self._missing(published, int(column.need.slots[row].sum())), Footnotes()
        found = column.entry(row, footnotes)
        if missing or found.value is None:
            reasons = list(footnotes.numbers) if found.value is None else [missing]
            return Comparison(published, label, None, "not run", "; ".join(reasons))
        ours = float(found.value)
        verdict: Verdict = "within" if self.tolerance.allows(published, ours) else "off"
        caveats = self._caveats(published, int(self.images.get((row, facet), 0)), self.cells[row, facet])
        return Comparison(published, label, ours, verdict, "; ".join(caveats))

    def _column(self, published: Published, row: int, facet: str) -> Entries:
        """The column whose number in a row is compared."""
        kept = published.wanted.settings.get("bank_policy") == "keep_all"  # grows with the stream
        fact = published.metric == "memory_mib" or (published.metric == "bank_mib" and not kept)
        slots = self._slots(published, row, facet)
        place = (published.metric, fact, facet, slots.to_numpy().tobytes())
        if place not in self.columns:
            column = Column(published.metric, published.metric, "count")
            spec = ColumnSpec(
                column, self.measures[published.metric], lambda _: slots, fact=fact, facets=(facet,)
            )
            self.columns[place] = Entries(self.pivot, spec, self.pivot.scope & slots.to_numpy())
        return self.columns[place]

    def _slots(self, published: Published, row: int, facet: str) -> Series:
        """The slots of a row that a published number covers."""
        slots = self.pivot.slots
        own = (slots["facet"] == facet) & self.pivot.present[row]
        if published.metric != "accuracy":
            return own
        if published.wanted.domains:
            own &= slots["corruption"].isin(published.wanted.domains)
            own &= slots["severity"] == published.setting.severity
        if published.round == "all":
            return own
        last = slots["round"][own].max()
        return own & (slots["round"] == (last if published.round == "reset" else published.round))

    def _missing(self, published: Published, domains: int) -> str:
        """Which domains our accuracy would lack; empty if none."""
        if published.metric != "accuracy":
            return ""
        rounds = published.setting.rounds if published.round == "all" else 1
        wanted = rounds * max(1, len(published.wanted.domains))
        return f"{domains} of {wanted} domains" if domains < wanted else ""

    def _caveats(self, published: Published, images: int, cell: Identity) -> Iterator[str]:
        """How our number differs from the published setting, and the note on the published one."""
        if published.metric == "accuracy":
            if images < published.wanted.images:
                yield f"{images} of {published.wanted.images} images per domain"
            elif images > published.wanted.images:
                yield f"{images} images per domain, published with {published.wanted.images}"
            if cell.data in self.reference.stand_ins:
                yield "corruptions regenerated, not the published files"
        if note := published.note_beside(cell):
            yield note


def summarize(found: Sequence[Comparison], reference: Reference, tolerance: Tolerance) -> Description:
    """All comparisons as a table, and the number of each verdict."""
    counts = Counter(comparison.verdict for comparison in found)
    rows = [_row(comparison) for comparison in found]
    settings = settings_of([comparison.published for comparison in found] or reference.rows)
    missing = Counter(row.wanted.missing for row in reference.rows if row.wanted.missing)
    settings += [f"{count} numbers belong to no cell: {reason}." for reason, count in missing.items()]
    head = (
        f"{reference.title}: {len(reference.rows)} numbers, {len(found)} of them of these cells: "
        f"{', '.join(f'{counts[verdict]} {verdict}' for verdict in VERDICTS)}.\n"
        f"Within: {tolerance.points:g} points of accuracy, {tolerance.percent:g} % of all else.\n"
        + "\n".join(settings)
    )
    verdicts = {verdict: counts[verdict] for verdict in VERDICTS}
    data = {"reference": reference.name, "settings": settings, "verdicts": verdicts, "cells": rows}
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
