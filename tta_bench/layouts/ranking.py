"""The rows of a group beside each other: who is best, who is tied with whom, and by how much they differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from tta_bench.layouts.evidence import evidence
from tta_bench.layouts.lines import Line
from tta_bench.layouts.plan import Spec
from tta_bench.layouts.records import Slot
from tta_bench.layouts.types import Entry, Row, printed
from tta_bench.statistics import TOO_LITTLE, Difference, Evidence, compare, holm, ranks

TIES = (
    "Marked: the best of its group and the rows next to it that are tied with it, as the paired 95 % "
    "interval of their difference contains 0, or as both print the same. A rank with = is shared. Rows that "
    "are not complete have no rank."
)
UNRANKED = f"Columns without ranks have {TOO_LITTLE}."
Columns = list[list[Entry]]


def compared(
    rows: Sequence[Row], lines: Sequence[Line], specs: Sequence[Spec], scope: Sequence[Slot]
) -> tuple[Row, ...]:
    """The rows of a group, ranked in every column of accuracies, and with what is filled in from others."""
    columns: Columns = [[row.entries[i] for row in rows] for i in range(len(specs))]
    whole = [line.complete(scope) for line in lines]
    for index, spec in enumerate(specs):
        if spec.column.kind == "accuracy":
            columns[index] = _ranked(columns[index], _known(lines, whole, spec, scope))
    ranked = {spec.column.key: column for spec, column in zip(specs, columns, strict=True)}
    places = [line.row for line in lines]
    differences = _Differences(lines, whole, specs, scope)
    for index, spec in enumerate(specs):
        if spec.ranks:
            columns[index] = [_rank(item) for item in ranked[spec.ranks]]
        elif spec.compares in places:
            columns[index] = differences.column(places.index(spec.compares))
    return tuple(replace(row, entries=tuple(column[i] for column in columns)) for i, row in enumerate(rows))


def ties(found: Sequence[Evidence | None]) -> list[list[int] | None]:
    """For each row the rows that it cannot be told from; None where there is too little data for any."""
    tied: list[list[int]] = [[] for _ in found]
    unknown = {i for i, each in enumerate(found) if each is None}
    for i, j in combinations([i for i in range(len(found)) if i not in unknown], 2):
        ours, theirs = found[i], found[j]
        assert ours is not None
        assert theirs is not None
        difference = compare(ours, theirs)
        if difference is None:
            unknown |= {i, j}
        elif difference.tie:
            tied[i].append(j)
            tied[j].append(i)
    return [None if i in unknown else each for i, each in enumerate(tied)]


def _known(
    lines: Sequence[Line], whole: Sequence[bool], spec: Spec, scope: Sequence[Slot]
) -> list[Evidence | None]:
    """What complete lines say in a column."""
    pairs = zip(lines, whole, strict=True)
    return [evidence(line, spec, scope) if complete else None for line, complete in pairs]


def _ranked(entries: list[Entry], found: Sequence[Evidence | None]) -> list[Entry]:
    """The entries of a column, ranked where there are several; what is tied with the best is best."""
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


def _rank(item: Entry) -> Entry:
    """A rank as an entry of its own."""
    if not item.rank:
        return Entry()
    return Entry(float(item.rank.rstrip("=")), seeds=item.seeds, rank=item.rank)


class _Differences:
    """All rows of a group against each other, p-values corrected for how many pairs there are."""

    def __init__(
        self, lines: Sequence[Line], whole: Sequence[bool], specs: Sequence[Spec], scope: Sequence[Slot]
    ) -> None:
        spec = next((spec for spec in specs if spec.compares is not None), None)
        self.found = [] if spec is None else _known(lines, whole, spec, scope)
        pairs: dict[tuple[int, int], Difference] = {}
        for i, j in combinations(range(len(self.found)), 2):
            ours, theirs = self.found[i], self.found[j]
            if ours is not None and theirs is not None and (found := compare(ours, theirs)) is not None:
                pairs[i, j] = found
        corrected = holm([each.p for each in pairs.values()])
        self.pairs = {k: v._replace(p=p) for (k, v), p in zip(pairs.items(), corrected, strict=True)}

    def column(self, against: int) -> list[Entry]:
        """How much higher each row scores than one of them."""
        return [self._entry(row, against) for row in range(len(self.found))]

    def _entry(self, row: int, against: int) -> Entry:
        ours, theirs = self.found[row], self.found[against]
        if row == against or ours is None or theirs is None:
            return Entry()
        seeds = len(ours.scores)
        if (found := self.pairs.get((row, against))) is not None:
            return Entry(found.value, low=found.low, high=found.high, p=found.p, seeds=seeds)
        if (found := self.pairs.get((against, row))) is not None:
            return Entry(-found.value, low=-found.high, high=-found.low, p=found.p, seeds=seeds)
        return Entry(float(ours.scores.mean() - theirs.scores.mean()), seeds=seeds)
