"""Records sorted into lines, one per row of a table, each knowing what it lacks and why."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tta_bench.layouts.checks import mixed_versions, refuse_doubles, row_differences, told
from tta_bench.layouts.records import GroupId, Record, RowId, Slot, bits_order, stream_order

UNTOLD = "not recorded"
ABSENT = "not part of the benchmark"
LONGEST_REASON = 200  # characters; the whole of it is in the store
MOST_REASONS = 3  # of skipped updates in one footnote


@dataclass(frozen=True)
class Line:
    """The records behind one row, by seed; every seed of the table is there, if only empty.

    `done` holds those that carry a result, by their place in the stream.
    """

    group: GroupId
    row: RowId
    versions: str
    cells: dict[int, list[Record]]
    done: dict[int, dict[Slot, Record]]

    @property
    def records(self) -> list[Record]:
        """All of them."""
        return [record for records in self.cells.values() for record in records]

    def expects(self, slot: Slot) -> bool:
        """Whether the line is to have a result there."""
        return any(record.expects(slot) for record in self._first)

    def complete(self, scope: Sequence[Slot]) -> bool:
        """Whether every seed has all results that it is to have, and none has failed."""
        if any(record.stopped for record in self.records):
            return False
        return all(slot in done for slot in scope if self.expects(slot) for done in self.done.values())

    @property
    def codes(self) -> int:
        """By how many versions of code its cells were planned, at most in one facet."""
        found: dict[str, set[str]] = defaultdict(set)
        for record in self._first:
            found[record.facet].add(record.code)
        return max(map(len, found.values()), default=0)

    @cached_property
    def _first(self) -> list[Record]:
        """A record of each cell, which knows what its cell is to have."""
        return list({(record.key, record.facet): record for record in self.records}.values())

    def narrowed(self, facets: Sequence[str]) -> Line:
        """The line with nothing but the records of these facets."""
        cells = {seed: [r for r in found if r.facet in facets] for seed, found in self.cells.items()}
        done = {
            seed: {slot: r for slot, r in found.items() if slot.facet in facets}
            for seed, found in self.done.items()
        }
        return replace(self, cells=cells, done=done)


def lines(layout: str, records: Sequence[Record]) -> list[Line]:
    """The lines of a table in the order of the YAML; two cells in one place are an error."""
    seeds = sorted({record.seed for record in records})
    split, differing = mixed_versions(records), row_differences(records)
    found: dict[tuple[GroupId, RowId], list[Record]] = defaultdict(list)
    for record in records:
        # Versions and settings of a method are rows of their own, so that none is averaged with another.
        version = record.version if record.method in split else ""
        row = RowId(record.method, record.variant, record.reset, version)
        apart = told(record, differing.get((record.group, row._replace(version="")), ()))
        found[record.group, row._replace(settings=apart)].append(record)
    refuse_doubles(layout, (((*group, *row), rows) for (group, row), rows in found.items()))
    return [_line(*place, found[place], seeds) for place in _ordered(found)]


def label_of(row: RowId) -> str:
    """What readers see of a row."""
    variant, version = (
        (f" [{row.variant}]" if row.variant else ""),
        (f" (v{row.version})" if row.version else ""),
    )
    settings = f" ({row.settings})" if row.settings else ""
    return f"{row.method}{variant}{version}{settings}"


def _line(group: GroupId, row: RowId, records: Sequence[Record], seeds: Sequence[int]) -> Line:
    """One line."""
    versions = ", ".join(sorted({record.version for record in records if record.version}))
    cells = {seed: [record for record in records if record.seed == seed] for seed in seeds}
    done = {seed: {r.slot: r for r in cells[seed] if r.ok and r.slot is not None} for seed in seeds}
    return Line(group, row, versions, cells, done)


def _ordered(
    found: dict[tuple[GroupId, RowId], list[Record]],
) -> list[tuple[GroupId, RowId]]:
    """Places as in the YAML; names settle what it leaves open."""
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


def shortfall(line: Line, scope: Sequence[Slot]) -> str:
    """Why a line has no number where it has none: unsupported, failed, or not run yet."""
    seeds_of: dict[str, list[int]] = defaultdict(list)
    missing = 0
    scope = [slot for slot in scope if line.expects(slot)]
    for seed, records in line.cells.items():
        stopped = next((r for r in records if r.stopped), None)
        if stopped is not None:
            seeds_of[_reason(stopped)].append(seed)
        else:
            missing += sum(slot not in line.done[seed] for slot in scope)
    texts = [_of_seeds(text, seeds, len(line.cells)) for text, seeds in seeds_of.items()]
    if missing:
        texts.append(f"not run yet: {missing} of {len(scope) * len(line.cells)} records")
    return "; ".join(texts) or (UNTOLD if scope else "not run yet")


def _reason(record: Record) -> str:
    """Status and reason on one line; of a traceback, the line that says what happened."""
    text = record.reason.strip()
    if record.status == "failed":
        text = text.splitlines()[-1] if text else ""
    return f"{record.status}: {_short(text) or 'no reason recorded'}"


def _short(text: str) -> str:
    """A text on one line, cut where it is too long for a footnote."""
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_REASON else f"{text[: LONGEST_REASON - 1]}…"


def _of_seeds(text: str, seeds: Sequence[int], of: int) -> str:
    """The text, with the seeds that it is true of unless that is all of them."""
    if len(seeds) == of:
        return text
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}: {text}"


def skipped(records: Iterable[Record]) -> str:
    """A text on updates that a method skipped, and why, or nothing."""
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
    told = [(_short(reason), number) for reason, number in reasons.most_common(MOST_REASONS)]
    if (rest := count - sum(number for _, number in told)) > 0:
        told.append(("other reasons", rest))
    if len(told) == 1:
        return f"{text}: {told[0][0]}"
    return f"{text}: " + "; ".join(f"{reason} ({number})" for reason, number in told)
