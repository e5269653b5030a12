"""The entries of a table: mean and spread, or a dash with the reason."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Any

import numpy as np
from pandas import DataFrame

from tta_bench.tables.assembly.pivot import Needed, Pivot, short
from tta_bench.tables.layout import ColumnSpec
from tta_bench.tables.statistics import Evidence, deviation, estimate
from tta_bench.tables.table import TableEntry

NOT_RECORDED = "not recorded"
ABSENT = "not part of the benchmark"
MOST_REASONS = 3  # for skipped updates, in one footnote


@dataclass
class Footnotes:
    """The footnotes of a table under construction, numbered by first use; equal texts share a number."""

    numbers: dict[str, int] = field(default_factory=dict)

    def mark(self, text: str) -> tuple[int, ...]:
        """The mark of a footnote; no mark for an empty text."""
        if not text:
            return ()
        return (self.numbers.setdefault(text, len(self.numbers) + 1),)


class Entries:
    """The entries of one column; `scope` has the slots that rows must fill, by default those of the table."""

    def __init__(self, pivot: Pivot, spec: ColumnSpec, scope: np.ndarray | None = None) -> None:
        self.pivot, self.spec, self.scope = pivot, spec, pivot.scope if scope is None else scope
        self.need: Needed = pivot.need(spec, self.scope)
        self.values = pivot.measured(spec)

    def entry(self, row: int, footnotes: Footnotes) -> TableEntry:
        """The entry of a row."""
        spec = self.spec
        if spec.ranks or spec.compares:
            return TableEntry()
        if self.need.absent[row]:
            return TableEntry(marks=footnotes.mark(ABSENT))
        found = self.values[row] if spec.fact or self.need.complete[row] else np.array([])
        values = found[~np.isnan(found)].tolist()
        if not values or (len(values) < len(found) and not spec.fact):
            return TableEntry(marks=footnotes.mark(self._missing(row)))
        marks = footnotes.mark(self.notes.get(row, "")) if spec.mark else ()
        if spec.column.kind == "flag":
            return TableEntry(any(values), seeds=len(values), marks=marks)
        if spec.column.kind != "accuracy":
            return TableEntry(fmean(values), seeds=len(values), marks=marks)
        evidence = self._evidence(row)
        if spec.repetitions:
            values = evidence.scores.mean(axis=1).tolist()
        shown = estimate(evidence)
        half = None if shown is None else shown.half
        return TableEntry(fmean(values), deviation(values), half, seeds=len(values), marks=marks)

    def evidence(self, row: int) -> Evidence | None:
        """The data behind the number of a row; None if any record is missing."""
        return self._evidence(row) if self.need.complete[row] else None

    def _evidence(self, row: int) -> Evidence:
        of = self.pivot.repeated if self.spec.repetitions else self.pivot.evidence
        return of(row, self.need.slots[row])

    @cached_property
    def notes(self) -> dict[int, str]:
        """What the mark of the column says about each row."""
        needed = self.pivot.needed(self.spec)[self.pivot.ok["slot"]]
        return {} if self.spec.mark is None else self.spec.mark(self.pivot.ok[needed])

    def _missing(self, row: int) -> str:
        """Why a row has no number: unsupported, failed, not run yet, or not recorded."""
        pivot, facets = self.pivot, self.spec.facets
        own = pivot.of_facets(facets)
        if self.spec.fact and (pivot.done[row] & own).any():
            return "" if self.spec.optional else NOT_RECORDED
        scope = self.scope[row] & pivot.expected[row] & own
        stopped = {
            seed: text for seed, facet, text in pivot.stops.get(row, ()) if not facets or facet in facets
        }
        seeds_of: dict[str, list[int]] = defaultdict(list)
        for seed, text in sorted(stopped.items()):
            seeds_of[text].append(seed)
        waiting = [i for i, seed in enumerate(pivot.seeds) if seed not in stopped]
        missing = int((scope & ~pivot.done[row, waiting]).sum())
        texts = [_of_seeds(text, seeds, len(pivot.seeds)) for text, seeds in seeds_of.items()]
        if missing:
            texts.append(f"not run yet: {missing} of {scope.sum() * len(pivot.seeds)} records")
        return "; ".join(texts) or (NOT_RECORDED if scope.any() else "not run yet")


def _of_seeds(text: str, seeds: Sequence[int], of: int) -> str:
    """The text, preceded by its seeds unless it applies to all of them."""
    if len(seeds) == of:
        return text
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}: {text}"


def skipped(records: DataFrame) -> dict[int, str]:
    """How many updates the method of each row skipped, and why; rows without any are left out."""
    found: Any = records[records["skipped_updates"] > 0].groupby("row")
    return {row: _skipped(own) for row, own in found}


def _skipped(records: DataFrame) -> str:
    count = int(records["skipped_updates"].sum())
    text = f"{count} update{'s' * (count != 1)} skipped"
    reasons: Counter[str] = Counter()
    for stated in records["skipped_reasons"]:
        reasons.update(json.loads(stated))
    if not reasons:
        return text
    shown = [(short(reason), number) for reason, number in reasons.most_common(MOST_REASONS)]
    if (rest := count - sum(number for _, number in shown)) > 0:
        shown.append(("other reasons", rest))
    if len(shown) == 1:
        return f"{text}: {shown[0][0]}"
    return f"{text}: " + "; ".join(f"{reason} ({number})" for reason, number in shown)
