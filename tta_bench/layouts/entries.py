"""A line and a column make an entry: mean and spread over seeds, or a dash that says why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from tta_bench.layouts.evidence import evidence
from tta_bench.layouts.lines import ABSENT, UNTOLD, Line, shortfall
from tta_bench.layouts.plan import Spec
from tta_bench.layouts.records import Slot
from tta_bench.layouts.types import Entry
from tta_bench.statistics import deviation, estimate


@dataclass
class Footnotes:
    """Footnotes while a table is built: numbered as they are first met, equal ones once."""

    texts: list[str] = field(default_factory=list)

    def mark(self, text: str) -> tuple[int, ...]:
        """The mark of a footnote; none for an empty text."""
        if not text:
            return ()
        if text not in self.texts:
            self.texts.append(text)
        return (self.texts.index(text) + 1,)


def entry(line: Line, spec: Spec, scope: Sequence[Slot], footnotes: Footnotes) -> Entry:
    """The entry of a line in a column."""
    if spec.ranks or spec.compares:
        return Entry()
    if spec.facets:
        if not {r.facet for r in line.records}.issuperset(spec.facets):
            return Entry(marks=footnotes.mark(ABSENT))
        line = line.narrowed(spec.facets)
        scope = [slot for slot in scope if slot.facet in spec.facets]
    if any(not line.expects(slot) for slot in scope if spec.needs(slot)):
        return Entry(marks=footnotes.mark(ABSENT))
    values = _facts(line, spec) if spec.fact else _results(line, spec, scope)
    if not values:
        known = spec.fact and any(line.done.values())
        return Entry(marks=footnotes.mark(UNTOLD if known else shortfall(line, scope)))
    if spec.column.kind == "flag":
        return Entry(value=any(values), seeds=len(values))
    if spec.column.kind != "accuracy":
        return Entry(fmean(values), seeds=len(values))
    shown = evidence(line, spec, scope)
    found = None if shown is None else estimate(shown)
    half = None if found is None else found.half
    return Entry(fmean(values), deviation(values), half, seeds=len(values))


def _facts(line: Line, spec: Spec) -> list[float]:
    """What the cells of a line say of themselves, as far as they do."""
    found = (spec.measure(records) for records in line.cells.values())
    return [value for value in found if value is not None]


def _results(line: Line, spec: Spec, scope: Sequence[Slot]) -> list[float]:
    """One number per seed, or none at all if a record is missing or a cell failed later on."""
    wanted = [slot for slot in scope if spec.needs(slot)]
    if not wanted or any(record.stopped for record in line.records):
        return []
    values: list[float] = []
    for done in line.done.values():
        if any(slot not in done for slot in wanted):
            return []
        value = spec.measure([done[slot] for slot in wanted])
        if value is None:
            return []
        values.append(value)
    return values
