"""A tidy frame of records becomes a Table: `build(frame, layout)`. `render` turns it into text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from tta_bench.layouts import LAYOUTS
from tta_bench.layouts.checks import refuse_mixed
from tta_bench.layouts.entries import Footnotes, entry
from tta_bench.layouts.evidence import evidence
from tta_bench.layouts.lines import Line, label_of, lines, skipped
from tta_bench.layouts.notes import cited, notes_on
from tta_bench.layouts.plan import Options, Plan, Spec, stream_text
from tta_bench.layouts.ranking import compared, ties
from tta_bench.layouts.records import GroupId, Record, Slot, read, slots
from tta_bench.layouts.types import Column, Entry, Kind, Row, RowGroup, Table, TableError
from tta_bench.reference import Published, Reference, cell_of, load

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = [
    "LAYOUTS",
    "Column",
    "Entry",
    "Kind",
    "Options",
    "Row",
    "RowGroup",
    "Table",
    "TableError",
    "build",
]


FEW_CODES = "its seeds were computed by different code of its plugins"
OTHER_CODE = "computed by other code of its plugins than is installed now (--keep-stale)"


def build(frame: DataFrame, layout: str, **options: Any) -> Table:
    """The table that a layout makes of a tidy frame; `Options` says what may be asked of it."""
    _known("layout", layout, list(LAYOUTS))
    names = [field.name for field in fields(Options)]
    for name in options:
        _known("option", name, names)
    asked = Options(**options)
    plan, records = _planned(frame, layout, asked)
    return _assemble(layout, plan, records, asked)


def tied(frame: DataFrame, layout: str, column: str, **options: Any) -> list[list[int] | None]:
    """For each row of a table, the rows of all groups that it cannot be told from in a column.

    None where a row is not complete, or where there is too little data.
    """
    plan, records = _planned(frame, layout, Options(**options))
    spec = next(spec for spec in plan.specs if spec.column.key == column)
    found = []
    for _, members in _groups(layout, plan, records):
        for line in members.lines:
            found.append(evidence(line, spec, members.scope) if line.complete(members.scope) else None)
    return ties(found)


def _planned(frame: DataFrame, layout: str, asked: Options) -> tuple[Plan, list[Record]]:
    """The plan of a layout, and the records that its columns are about."""
    records = read(frame)
    plan = LAYOUTS[layout](layout, records, asked)
    records = records if plan.records is None else list(plan.records)
    shown = frozenset(_scope(plan, records))
    within = [r for r in records if r.slot is None or r.slot in shown]
    return plan, _complete(within, records)


def _scope(plan: Plan, records: Sequence[Record]) -> list[Slot]:
    """The places in the stream that the columns of a plan are about."""
    return [slot for slot in slots(records) if any(spec.needs(slot) for spec in plan.specs)]


class Group(NamedTuple):
    """The lines of one quantised model on one stream, and the places that they are to fill."""

    lines: list[Line]
    scope: list[Slot]


def _groups(layout: str, plan: Plan, records: Sequence[Record]) -> list[tuple[GroupId, Group]]:
    """The groups of a table, in the order of the YAML."""
    found = []
    for group, members in groupby(lines(layout, records), key=lambda line: line.group):
        of_group = list(members)
        own = [record for line in of_group for record in line.records]
        found.append((group, Group(of_group, _scope(plan, own))))
    return found


def _complete(within: list[Record], records: Sequence[Record]) -> list[Record]:
    """The records in scope and, of each cell that has none there yet, a sign that it is awaited."""
    present = {record.key for record in within}
    awaited = {record.key: record for record in records if record.key not in present}
    return within + [replace(record, status="pending", slot=None) for record in awaited.values()]


def _known(what: str, name: str, names: Sequence[str]) -> None:
    """An error if a name is none of those there are."""
    if name not in names:
        close = get_close_matches(name, names, n=1)
        hint = f'Did you mean "{close[0]}"? ' if close else ""
        raise TableError("table", f'unknown {what} "{name}"', f"{hint}There are: {', '.join(names)}")


def _assemble(layout: str, plan: Plan, records: Sequence[Record], asked: Options) -> Table:
    """The table of the records in scope."""
    footnotes = Footnotes()
    reference = None if asked.reference is None else load(asked.reference)
    mixed = refuse_mixed(layout, records, asked.allow_mixed)
    marks = footnotes.mark(f"mixed on request: {'; '.join(mixed)}" if mixed else "")
    gathered = _groups(layout, plan, records)
    found = [line for _, members in gathered for line in members.lines]
    quantizers = sorted({line.group.quantizer for line in found if line.group.bits != "FP32"})
    groups = tuple(
        _group(
            group,
            members.lines,
            RowMaker(layout, plan, members.scope, footnotes, reference),
            name_quantizer=len(quantizers) > 1,
        )
        for group, members in gathered
    )
    return Table(
        layout=layout,
        label=f"tab:{layout}" if asked.label is None else asked.label,
        caption=f"{plan.caption} {stream_text(records)}" if asked.caption is None else asked.caption,
        columns=tuple(spec.column for spec in plan.specs),
        groups=groups,
        footnotes=tuple(footnotes.texts),
        notes=(*notes_on(found, quantizers, groups, plan), *plan.notes, *cited(reference, groups)),
        marks=marks,
    )


def _group(group: GroupId, members: Sequence[Line], maker: RowMaker, name_quantizer: bool) -> RowGroup:
    """The rows of one quantised model; its quantizer is named where the table has several."""
    suffix = f" ({group.quantizer})" if name_quantizer and group.bits != "FP32" else ""
    rows = compared([maker.row(line) for line in members], members, maker.plan.specs, maker.scope)
    pairs = zip(rows, map(maker.published, members), strict=True)
    shown = tuple(row for pair in pairs for row in pair if row is not None)
    label = f"{group.model} {group.bits}{suffix}" + (f", {group.stream}" if group.stream else "")
    return RowGroup(label, group.model, group.quantizer, group.bits, shown, group.stream)


@dataclass(frozen=True)
class RowMaker:
    """Lines to rows, all by one plan."""

    layout: str
    plan: Plan
    scope: Sequence[Slot]
    footnotes: Footnotes
    reference: Reference | None

    def row(self, line: Line) -> Row:
        """One row, its label carrying all that sets it apart from others of the same method."""
        method, variant, reset, _, settings = line.row
        mark = self.footnotes.mark
        marks = (
            *mark("model reset after each domain" if reset == "domain" else ""),
            *mark(skipped(line.records)),
            *mark(OTHER_CODE if any(record.other_code for record in line.records) else ""),
            *mark(FEW_CODES if line.codes > 1 else ""),
        )
        entries = tuple(entry(line, spec, self.scope, self.footnotes) for spec in self.plan.specs)
        return Row(
            label_of(line.row), method, variant, reset, line.versions, entries, marks, settings=settings
        )

    def published(self, line: Line) -> Row | None:
        """What the reference says of a line, if anything."""
        if self.reference is None:
            return None
        found = [self._cited(line, spec, self.reference) for spec in self.plan.specs]
        if not any(found):
            return None
        entries = tuple(Entry(p.value, marks=self.footnotes.mark(p.note)) if p else Entry() for p in found)
        method, variant, reset, *_ = line.row
        return Row(f"{method}, published", method, variant, reset, "", entries, published=True)

    def _cited(self, line: Line, spec: Spec, reference: Reference) -> Published | None:
        records = line.narrowed(spec.facets).records if spec.facets else line.records
        if spec.cites is None or not records:
            return None
        return reference.find(cell_of(records[0]), spec.cites, self.layout)
