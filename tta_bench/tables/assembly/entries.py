"""A row in a column: its entry (mean and spread, or a dash with the reason), and the data behind it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np

from tta_bench.tables.assembly.layout_spec import ColumnSpec
from tta_bench.tables.assembly.records import Slot, TidyRecord
from tta_bench.tables.assembly.row_records import ABSENT, NOT_RECORDED, RowRecords, missing_reason
from tta_bench.tables.statistics import Batches, Evidence, deviation, estimate
from tta_bench.tables.table import TableEntry


@dataclass
class Footnotes:
    """The footnotes of a table under construction, numbered by first use; equal texts share a number."""

    texts: list[str] = field(default_factory=list)

    def mark(self, text: str) -> tuple[int, ...]:
        """The mark of a footnote; no mark for an empty text."""
        if not text:
            return ()
        if text not in self.texts:
            self.texts.append(text)
        return (self.texts.index(text) + 1,)


def entry(row: RowRecords, spec: ColumnSpec, scope: Sequence[Slot], footnotes: Footnotes) -> TableEntry:
    """The entry of a row in a column."""
    if spec.ranks or spec.compares:
        return TableEntry()
    if spec.facets:
        if not {r.facet for r in row.records}.issuperset(spec.facets):
            return TableEntry(marks=footnotes.mark(ABSENT))
        row = row.narrowed(spec.facets)
        scope = [slot for slot in scope if slot.facet in spec.facets]
    if any(not row.expects(slot) for slot in scope if spec.needs(slot)):
        return TableEntry(marks=footnotes.mark(ABSENT))
    of_seeds = row.cells.values() if spec.fact else complete_records(row, spec, scope)
    measured = [spec.measure(records) for records in of_seeds]
    values = [value for value in measured if value is not None]
    if not values or (len(values) < len(measured) and not spec.fact):
        known = spec.fact and any(row.done.values())
        return TableEntry(marks=footnotes.mark(NOT_RECORDED if known else missing_reason(row, scope)))
    if spec.column.kind == "flag":
        return TableEntry(value=any(values), seeds=len(values))
    if spec.column.kind != "accuracy":
        return TableEntry(fmean(values), seeds=len(values))
    shown = evidence(row, spec, scope)
    found = None if shown is None else estimate(shown)
    half = None if found is None else found.half
    return TableEntry(fmean(values), deviation(values), half, seeds=len(values))


def complete_records(row: RowRecords, spec: ColumnSpec, scope: Sequence[Slot]) -> list[list[TidyRecord]]:
    """The records that a column needs, by seed; empty if one is missing or a cell has failed."""
    row = row.narrowed(spec.facets)
    wanted = [s for s in scope if spec.needs(s) and (not spec.facets or s.facet in spec.facets)]
    if not wanted or any(record.stopped for record in row.records):
        return []
    if any(slot not in done for done in row.done.values() for slot in wanted):
        return []
    return [[done[slot] for slot in wanted] for done in row.done.values()]


def evidence(row: RowRecords, spec: ColumnSpec, scope: Sequence[Slot]) -> Evidence | None:
    """The accuracy of a row by seed and domain, averaged over rounds; None if any record is missing."""
    found = [_by_domain(of_seed) for of_seed in complete_records(row, spec, scope)]
    if not found:
        return None
    scores = [[fmean(r.accuracy or 0.0 for r in rounds) for rounds in of_seed] for of_seed in found]
    images = sum(max(r.n or 0 for r in rounds) for of_seed in found for rounds in of_seed)
    return Evidence(np.array(scores), images, _batches(found[0]) if len(found) == 1 else None)


def _by_domain(records: Sequence[TidyRecord]) -> list[list[TidyRecord]]:
    domains: dict[object, list[TidyRecord]] = defaultdict(list)
    for record in records:
        domains[record.slot and record.slot[1:]].append(record)  # all of the slot but its round
    return list(domains.values())


def _batches(domains: Sequence[Sequence[TidyRecord]]) -> tuple[Batches, ...] | None:
    """The batches of one seed by domain; None if a record lacks them."""
    found = [_of_domain(rounds) for rounds in domains]
    return None if any(each is None for each in found) else tuple(each for each in found if each is not None)


def _of_domain(rounds: Sequence[TidyRecord]) -> Batches | None:
    """The correct predictions in each batch of a domain; rounds with the same batches are averaged."""
    correct = [record.correct_per_batch for record in rounds]
    images, size = rounds[0].n or 0, rounds[0].batch_size
    count = -(-images // size)
    if any(hits is None or len(hits) != count for hits in correct) or not count:
        return None
    hits = np.array(correct, float)
    if len({record.fingerprint for record in rounds}) == 1:
        hits = hits.mean(axis=0, keepdims=True)
    sizes = np.full(count, size)
    sizes[-1] = images - size * (count - 1)
    return Batches(hits, sizes)
