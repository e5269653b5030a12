"""The records behind each row of a table, and the reasons why some are missing."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tta_bench.tables.assembly.checks import mixed_versions, named_facts, refuse_doubles, row_differences
from tta_bench.tables.assembly.records import (
    GroupId,
    RowId,
    Slot,
    TidyRecord,
    bits_order,
    gathered,
    stream_order,
)

NOT_RECORDED = "not recorded"
ABSENT = "not part of the benchmark"
LONGEST_REASON = 200  # characters; the results folder has the whole text
MOST_REASONS = 3  # for skipped updates, in one footnote


@dataclass(frozen=True)
class RowRecords:
    """The records behind one row, by seed; every seed of the table has an entry, which may be empty.

    `done` has the records with a result, by slot.
    """

    group: GroupId
    id: RowId
    versions: str
    cells: dict[int, list[TidyRecord]]
    done: dict[int, dict[Slot, TidyRecord]]

    @property
    def records(self) -> list[TidyRecord]:
        """The records of all seeds."""
        return [record for records in self.cells.values() for record in records]

    def expects(self, slot: Slot) -> bool:
        """Whether the benchmark has a result of this row in a slot."""
        return any(record.expects(slot) for record in self._first)

    def complete(self, scope: Sequence[Slot]) -> bool:
        """Whether every seed has all its results, and none has failed."""
        if any(record.stopped for record in self.records):
            return False
        return all(slot in done for slot in scope if self.expects(slot) for done in self.done.values())

    @property
    def codes(self) -> int:
        """How many versions of code the cells of one facet were planned with; the largest over facets."""
        codes = gathered((record.facet, record.code) for record in self._first)
        return max(map(len, codes.values()), default=0)

    @cached_property
    def _first(self) -> list[TidyRecord]:
        """One record of each cell; it knows the domains and rounds of its cell."""
        return list({(record.key, record.facet): record for record in self.records}.values())

    def narrowed(self, facets: Sequence[str]) -> RowRecords:
        """The row with the records of these facets only; all of them without facets."""
        if not facets:
            return self
        cells = {seed: [r for r in found if r.facet in facets] for seed, found in self.cells.items()}
        done = {
            seed: {slot: r for slot, r in found.items() if slot.facet in facets}
            for seed, found in self.done.items()
        }
        return replace(self, cells=cells, done=done)


def by_row(layout: str, records: Sequence[TidyRecord]) -> list[RowRecords]:
    """The rows of a table in the order of the YAML; raises an error if a row has two cells of one seed."""
    seeds = sorted({record.seed for record in records})
    split, differing = mixed_versions(records), row_differences(records)
    found: dict[tuple[GroupId, RowId], list[TidyRecord]] = defaultdict(list)
    for record in records:
        # Each version and each setting of a method has its own row: they are never averaged.
        version = record.version if record.method in split else ""
        row = RowId(record.method, record.variant, record.reset, version)
        settings = named_facts(record, differing.get((record.group, row._replace(version="")), ()))
        found[record.group, row._replace(settings=settings)].append(record)
    refuse_doubles(layout, (((*group, *row), rows) for (group, row), rows in found.items()))
    return [_row_records(*row, found[row], seeds) for row in _ordered(found)]


def label_of(row: RowId) -> str:
    """The label of a row."""
    variant = f" [{row.variant}]" if row.variant else ""
    version = f" (v{row.version})" if row.version else ""
    settings = f" ({row.settings})" if row.settings else ""
    return f"{row.method}{variant}{version}{settings}"


def _row_records(
    group: GroupId, row: RowId, records: Sequence[TidyRecord], seeds: Sequence[int]
) -> RowRecords:
    """One row: its records by seed, and its results by seed and slot."""
    versions = ", ".join(sorted({record.version for record in records if record.version}))
    cells = {seed: [record for record in records if record.seed == seed] for seed in seeds}
    done = {seed: {r.slot: r for r in cells[seed] if r.ok and r.slot is not None} for seed in seeds}
    return RowRecords(group, row, versions, cells, done)


def _ordered(
    found: dict[tuple[GroupId, RowId], list[TidyRecord]],
) -> list[tuple[GroupId, RowId]]:
    """Rows in the order of the YAML, then by name."""
    models: dict[GroupId, tuple[int, int]] = {}
    methods: dict[tuple[GroupId, RowId], int] = {}
    for (group, row), records in found.items():
        first = min((r.model_order, r.quantizer_order) for r in records)
        models[group] = min(models.get(group, first), first)
        methods[group, row] = min(r.method_order for r in records)
    return sorted(
        found,
        key=lambda p: (
            models[p[0]],
            p[0].model,
            bits_order(p[0].bits),
            stream_order(p[0].stream),
            p[0],
            methods[p],
            p[1],
        ),
    )


def missing_reason(row: RowRecords, scope: Sequence[Slot]) -> str:
    """Why a row has no number: unsupported, failed, or not run yet."""
    seeds_of: dict[str, list[int]] = defaultdict(list)
    missing = 0
    scope = [slot for slot in scope if row.expects(slot)]
    for seed, records in row.cells.items():
        stopped = next((r for r in records if r.stopped), None)
        if stopped is not None:
            seeds_of[_reason(stopped)].append(seed)
        else:
            missing += sum(slot not in row.done[seed] for slot in scope)
    texts = [_of_seeds(text, seeds, len(row.cells)) for text, seeds in seeds_of.items()]
    if missing:
        texts.append(f"not run yet: {missing} of {len(scope) * len(row.cells)} records")
    return "; ".join(texts) or (NOT_RECORDED if scope else "not run yet")


def _reason(record: TidyRecord) -> str:
    """Status and reason on one line; of a traceback, its last line."""
    text = record.reason.strip()
    if record.status == "failed":
        text = text.splitlines()[-1] if text else ""
    return f"{record.status}: {_short(text) or 'no reason recorded'}"


def _short(text: str) -> str:
    """A text on one line, cut if it is too long for a footnote."""
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_REASON else f"{text[: LONGEST_REASON - 1]}…"


def _of_seeds(text: str, seeds: Sequence[int], of: int) -> str:
    """The text, preceded by its seeds unless it applies to all of them."""
    if len(seeds) == of:
        return text
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}: {text}"


def skipped(records: Iterable[TidyRecord]) -> str:
    """How many updates a method skipped, and why; empty if none."""
    done = [record for record in records if record.ok]
    count = sum(record.skipped_updates for record in done)
    if not count:
        return ""
    text = f"{count} update{'s' * (count != 1)} skipped"
    reasons: Counter[str] = Counter()
    for record in done:
        reasons.update(json.loads(record.skipped_reasons))
    if not reasons:
        return text
    shown = [(_short(reason), number) for reason, number in reasons.most_common(MOST_REASONS)]
    if (rest := count - sum(number for _, number in shown)) > 0:
        shown.append(("other reasons", rest))
    if len(shown) == 1:
        return f"{text}: {shown[0][0]}"
    return f"{text}: " + "; ".join(f"{reason} ({number})" for reason, number in shown)
