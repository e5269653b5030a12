"""Comparison of the rows of a group: ranks, ties, and paired differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from tta_bench.tables.assembly.entries import evidence
from tta_bench.tables.assembly.layout_spec import ColumnSpec
from tta_bench.tables.assembly.records import Slot
from tta_bench.tables.assembly.row_records import RowRecords
from tta_bench.tables.statistics import TOO_LITTLE, Evidence, compare, holm, ranks
from tta_bench.tables.table import Row, TableEntry, printed

TIES = (
    "Marked: the best of its group and the rows next to it that are tied with it, as the paired 95 % "
    "interval of their difference contains 0, or as both print the same. A rank with = is shared. Rows that "
    "are not complete have no rank."
)
UNRANKED = f"Columns without ranks have {TOO_LITTLE}."
Columns = list[list[TableEntry]]


def compared(
    rows: Sequence[Row], records: Sequence[RowRecords], specs: Sequence[ColumnSpec], scope: Sequence[Slot]
) -> tuple[Row, ...]:
    """The rows of a group, with ranks in columns of accuracy and with the columns that compare rows."""
    columns: Columns = [[row.entries[i] for row in rows] for i in range(len(specs))]
    complete = [row if row.complete(scope) else None for row in records]
    for index, spec in enumerate(specs):
        if spec.column.kind == "accuracy":
            columns[index] = _ranked(columns[index], _evidence(complete, spec, scope))
    ranked = {spec.column.key: column for spec, column in zip(specs, columns, strict=True)}
    ids = [row.id for row in records]
    differences = _Differences(complete, specs, scope)
    for index, spec in enumerate(specs):
        if spec.ranks:
            columns[index] = [_rank(item) for item in ranked[spec.ranks]]
        elif spec.compares in ids:
            columns[index] = differences.column(ids.index(spec.compares))
    return tuple(replace(row, entries=tuple(column[i] for column in columns)) for i, row in enumerate(rows))


def ties(found: Sequence[Evidence | None]) -> list[list[int] | None]:
    """For each row, the rows that are tied with it; None if it has too little data."""
    known = {i: each for i, each in enumerate(found) if each is not None}
    tied: dict[int, list[int]] = {i: [] for i in known}
    unknown = set()
    for (i, ours), (j, theirs) in combinations(known.items(), 2):
        difference = compare(ours, theirs)
        if difference is None:
            unknown |= {i, j}
        elif difference.tie:
            tied[i].append(j)
            tied[j].append(i)
    return [None if i in unknown else tied.get(i) for i in range(len(found))]


def _evidence(
    complete: Sequence[RowRecords | None], spec: ColumnSpec, scope: Sequence[Slot]
) -> list[Evidence | None]:
    """The evidence in a column for each row; None for a row that is not complete."""
    return [None if row is None else evidence(row, spec, scope) for row in complete]


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

    def __init__(
        self, complete: Sequence[RowRecords | None], specs: Sequence[ColumnSpec], scope: Sequence[Slot]
    ) -> None:
        spec = next((spec for spec in specs if spec.compares is not None), None)
        self.found = [] if spec is None else _evidence(complete, spec, scope)
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
