"""The rows of a group beside each other: who is best, who is tied with whom, and by how much they differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np

from tta_bench.layouts.lines import Line
from tta_bench.layouts.plan import Spec
from tta_bench.layouts.records import Slot
from tta_bench.layouts.types import Entry, Row, printed
from tta_bench.statistics import Rank, compare, ranks

TIES = (
    "Marked: the best of its group and what is tied with it, as its paired 95 % interval against the best "
    "(over domains and seeds) contains 0, or as both print the same. A rank with = is shared."
)
Columns = list[list[Entry]]


def compared(
    rows: Sequence[Row], lines: Sequence[Line], specs: Sequence[Spec], scope: Sequence[Slot]
) -> tuple[Row, ...]:
    """The rows of a group, ranked in every column of accuracies, and with what is filled in from others."""
    columns: Columns = [[row.entries[i] for row in rows] for i in range(len(specs))]
    for index, spec in enumerate(specs):
        if spec.column.kind == "accuracy":
            columns[index] = _ranked(columns[index], lines, spec, scope)
    ranked = {spec.column.key: column for spec, column in zip(specs, columns, strict=True)}
    places = [line.row for line in lines]
    for index, spec in enumerate(specs):
        if spec.ranks:
            columns[index] = [_rank(item) for item in ranked[spec.ranks]]
        elif spec.compares in places:
            columns[index] = _differences(lines, spec, scope, places.index(spec.compares))
    return tuple(replace(row, entries=tuple(column[i] for column in columns)) for i, row in enumerate(rows))


def scores(line: Line, spec: Spec, scope: Sequence[Slot]) -> np.ndarray | None:
    """A line's accuracy by seed and domain, rounds averaged; None unless it is complete."""
    if spec.facets:
        line = line.narrowed(spec.facets)
    wanted = [s for s in scope if spec.needs(s) and (not spec.facets or s.facet in spec.facets)]
    if not wanted or any(slot not in done for done in line.done.values() for slot in wanted):
        return None
    if any(record.stopped for record in line.records):
        return None
    domains: dict[tuple[str, int, str], list[Slot]] = defaultdict(list)
    for slot in wanted:
        domains[slot.corruption, slot.severity, slot.facet].append(slot)
    values = [
        [fmean(done[slot].accuracy or 0.0 for slot in slots) for slots in domains.values()]
        for done in line.done.values()
    ]
    return np.array(values)


def _ranked(entries: list[Entry], lines: Sequence[Line], spec: Spec, scope: Sequence[Slot]) -> list[Entry]:
    """The entries of a column, ranked where there are several; what is tied with the best is best."""
    known = [i for i, item in enumerate(entries) if item.value is not None]
    if len(known) < 2:
        return entries
    found = ranks(
        [_complete(scores(lines[i], spec, scope)) for i in known],
        [printed(entries[i].value or 0.0, "accuracy") for i in known],
    )
    placed: dict[int, Rank] = dict(zip(known, found, strict=True))
    return [
        replace(item, rank=str(placed[i]), best=placed[i].place == 1) if i in placed else item
        for i, item in enumerate(entries)
    ]


def _complete(found: np.ndarray | None) -> np.ndarray:
    assert found is not None  # as the entry has a value
    return found


def _rank(item: Entry) -> Entry:
    """A rank as an entry of its own."""
    if not item.rank:
        return Entry()
    return Entry(float(item.rank.rstrip("=")), seeds=item.seeds, rank=item.rank)


def _differences(lines: Sequence[Line], spec: Spec, scope: Sequence[Slot], against: int) -> list[Entry]:
    """How much higher each row scores than one of them."""
    found = [scores(line, spec, scope) for line in lines]
    return [_difference(own, found[against], i == against) for i, own in enumerate(found)]


def _difference(ours: np.ndarray | None, theirs: np.ndarray | None, same: bool) -> Entry:
    if same or ours is None or theirs is None:
        return Entry()
    difference = compare(ours, theirs)
    if difference is None:
        return Entry(float(ours.mean() - theirs.mean()), seeds=len(ours))
    return Entry(difference.value, low=difference.low, high=difference.high, p=difference.p, seeds=len(ours))
