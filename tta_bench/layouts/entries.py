"""A line and a column make an entry: mean and spread over seeds, or a dash that says why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev

from tta_bench.layouts.lines import ABSENT, UNTOLD, Line, shortfall
from tta_bench.layouts.plan import Spec
from tta_bench.layouts.records import Slot
from tta_bench.layouts.types import Entry, Row, printed


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


def entry(
    line: Line, spec: Spec, scope: Sequence[Slot], footnotes: Footnotes, interval: bool = False
) -> Entry:
    """The entry of a line in a column."""
    if spec.facets:
        if not {r.facet for r in line.records}.issuperset(spec.facets):
            return Entry(marks=footnotes.mark(ABSENT))
        line = line.narrowed(spec.facets)
        scope = [slot for slot in scope if slot.facet in spec.facets]
    values = _facts(line, spec) if spec.fact else _results(line, spec, scope)
    if not values:
        known = spec.fact and any(line.done.values())
        return Entry(marks=footnotes.mark(UNTOLD if known else shortfall(line, scope)))
    if spec.column.kind == "flag":
        return Entry(value=any(values), seeds=len(values))
    if spec.column.kind != "accuracy" or len(values) < 2:
        return Entry(fmean(values), seeds=len(values))
    std = stdev(values)
    half = half_interval(std, len(values)) if interval else None
    return Entry(fmean(values), std, half, len(values))


def half_interval(std: float, count: int) -> float:
    """Half the width of the 95 % interval of a mean, by Student's t."""
    from scipy.special import stdtrit  # only tables over several seeds wait for it

    return float(stdtrit(count - 1, 0.975)) * std / count**0.5


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


def with_best(rows: Sequence[Row], specs: Sequence[Spec]) -> tuple[Row, ...]:
    """The rows of a group, the best accuracy of each column flagged; equal as printed is equal."""
    best = [_best([row.entries[i] for row in rows], spec) for i, spec in enumerate(specs)]
    return tuple(
        replace(
            row,
            entries=tuple(
                replace(item, best=text is not None and _text(item) == text)
                for item, text in zip(row.entries, best, strict=True)
            ),
        )
        for row in rows
    )


def _best(entries: Sequence[Entry], spec: Spec) -> str | None:
    """The highest accuracy as printed; None where there is nothing to compare."""
    texts = [text for item in entries if (text := _text(item)) is not None]
    if spec.column.kind != "accuracy" or len(texts) < 2:
        return None
    return max(texts, key=float)


def _text(item: Entry) -> str | None:
    """An accuracy as printed."""
    return None if item.value is None else printed(item.value, "accuracy")
