"""Comparison of the rows of a group: ranks, ties, and paired differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from tta_bench.tables.assembly.entries import Entries
from tta_bench.tables.layout import RowId
from tta_bench.tables.statistics import TOO_LITTLE, Evidence, compare, holm, ranks
from tta_bench.tables.table import Row, TableEntry, printed

TIES = (
    "Marked: the best of its group and the rows next to it that are tied with it, as the paired 95 % "
    "interval of their difference contains 0, or as both print the same. A rank with = is shared. Rows that "
    "are not complete have no rank."
)
UNRANKED = f"Columns without ranks have {TOO_LITTLE}."


def compared(
    rows: Sequence[Row], ids: Sequence[RowId], first: int, columns: Sequence[Entries]
) -> tuple[Row, ...]:
    """The rows of a group, with ranks in columns of accuracy and with the columns that compare rows.

    `first` is the number of the first row in the table.
    """
    numbers = range(first, first + len(rows))
    entries = [[row.entries[i] for row in rows] for i in range(len(columns))]
    ranked: dict[str, list[TableEntry]] = {}
    for i, column in enumerate(columns):
        if column.spec.column.kind == "accuracy":
            entries[i] = ranked[column.spec.column.key] = _ranked(
                entries[i], complete_evidence(column, numbers)
            )
    comparing = next((column for column in columns if column.spec.compares), None)
    differences = None if comparing is None else _Differences(complete_evidence(comparing, numbers))
    for i, column in enumerate(columns):
        if column.spec.ranks:
            entries[i] = [_rank(item) for item in ranked[column.spec.ranks]]
        elif differences is not None and column.spec.compares in ids:
            entries[i] = differences.column(ids.index(column.spec.compares))
    return tuple(
        replace(row, entries=tuple(own)) for row, own in zip(rows, zip(*entries, strict=True), strict=True)
    )


def complete_evidence(column: Entries, rows: Sequence[int]) -> list[Evidence | None]:
    """The evidence in a column for each row; None for a row that is not complete."""
    return [column.evidence(row) if column.pivot.complete[row] else None for row in rows]


def _ranked(entries: list[TableEntry], found: Sequence[Evidence | None]) -> list[TableEntry]:
    """The entries of a column with their ranks, if there are several; all of rank 1 are best."""
    known = {i: each for i, each in enumerate(found) if each is not None and entries[i].value is not None}
    if len(known) < 2:
        return entries
    texts = [printed(entries[i].value or 0.0, "accuracy") for i in known]
    placed = ranks(list(known.values()), texts)
    if placed is None:
        return entries
    of = dict(zip(known, placed, strict=True))
    return [
        replace(item, rank=str(of[i]), best=of[i].place == 1) if i in of else item
        for i, item in enumerate(entries)
    ]


def _rank(item: TableEntry) -> TableEntry:
    """The rank of an entry as an entry of the column of ranks."""
    if not item.rank:
        return TableEntry()
    return TableEntry(float(item.rank.rstrip("=")), seeds=item.seeds, rank=item.rank)


class _Differences:
    """The differences of all pairs of rows of a group, with p-values corrected for the number of pairs."""

    def __init__(self, found: Sequence[Evidence | None]) -> None:
        self.found = found
        known = [(i, each) for i, each in enumerate(self.found) if each is not None]
        differences = {(i, j): compare(ours, theirs) for (i, ours), (j, theirs) in combinations(known, 2)}
        pairs = {pair: found for pair, found in differences.items() if found is not None}
        corrected = holm([each.p for each in pairs.values()])
        self.pairs = {k: v._replace(p=p) for (k, v), p in zip(pairs.items(), corrected, strict=True)}

    def column(self, against: int) -> list[TableEntry]:
        """The difference of each row and one of them."""
        return [self._entry(row, against) for row in range(len(self.found))]

    def _entry(self, row: int, against: int) -> TableEntry:
        ours, theirs = self.found[row], self.found[against]
        if row == against or ours is None or theirs is None:
            return TableEntry()
        seeds = len(ours.scores)
        if (found := self.pairs.get((row, against))) is not None:
            return TableEntry(found.value, low=found.low, high=found.high, p=found.p, seeds=seeds)
        if (found := self.pairs.get((against, row))) is not None:
            return TableEntry(-found.value, low=-found.high, high=-found.low, p=found.p, seeds=seeds)
        return TableEntry(float(ours.scores.mean() - theirs.scores.mean()), seeds=seeds)
