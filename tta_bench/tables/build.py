"""A tidy frame of records becomes a Table: `build(frame, layout)`. `render` turns it into text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from tta_bench.errors import suggest
from tta_bench.tables.assembly.checks import refuse_mixed
from tta_bench.tables.assembly.entries import Footnotes, entry, evidence
from tta_bench.tables.assembly.layout_spec import LayoutInput, Options, TableSpec, stream_text
from tta_bench.tables.assembly.notes import table_notes
from tta_bench.tables.assembly.published import published_row, reference_note
from tta_bench.tables.assembly.ranking import compared, ties
from tta_bench.tables.assembly.records import GroupId, Slot, TidyRecord, read, slots
from tta_bench.tables.assembly.row_records import RowRecords, by_row, label_of, skipped
from tta_bench.tables.layouts import LAYOUTS
from tta_bench.tables.reference import load
from tta_bench.tables.table import Row, RowGroup, Table, TableError

if TYPE_CHECKING:
    from pandas import DataFrame

RESET = "model reset after each domain"
MIXED_CODE = "its seeds were computed by different code of its plugins"
OTHER_CODE = "computed by other code of its plugins than is installed now (--keep-stale)"


def build(frame: DataFrame, layout: str, **options: Any) -> Table:
    """The table that a layout makes from a tidy frame; `options` are the fields of `Options`."""
    _check_known("layout", layout, list(LAYOUTS))
    names = [field.name for field in fields(Options)]
    for name in options:
        _check_known("option", name, names)
    asked = Options(**options)
    spec, records = _laid_out(frame, layout, asked)
    return _assemble(layout, spec, records, asked)


def tied(frame: DataFrame, layout: str, column: str, **options: Any) -> list[list[int] | None]:
    """For each row of a table, the rows of all groups that are tied with it in a column.

    None for a row that is not complete or has too little data.
    """
    table, records = _laid_out(frame, layout, Options(**options))
    spec = next(spec for spec in table.columns if spec.column.key == column)
    found = []
    for group in _groups(layout, table, records):
        for row in group.rows:
            found.append(evidence(row, spec, group.scope) if row.complete(group.scope) else None)
    return ties(found)


def _check_known(what: str, name: str, names: list[str]) -> None:
    """Raise an error if there is no such name."""
    if name not in names:
        raise TableError("table", f'unknown {what} "{name}"', suggest(name, names, "There are"))


def _laid_out(frame: DataFrame, layout: str, asked: Options) -> tuple[TableSpec, list[TidyRecord]]:
    """The specification that a layout makes, and the records that its columns use."""
    records = read(frame)
    spec = LAYOUTS[layout](LayoutInput(layout, records, asked))
    records = records if spec.records is None else list(spec.records)
    shown = frozenset(_scope(spec, records))
    within = [r for r in records if r.slot is None or r.slot in shown]
    return spec, within + _pending(within, records)


def _scope(spec: TableSpec, records: Sequence[TidyRecord]) -> list[Slot]:
    """The slots that any column of a table uses."""
    return [slot for slot in slots(records) if any(column.needs(slot) for column in spec.columns)]


def _pending(within: Sequence[TidyRecord], records: Sequence[TidyRecord]) -> list[TidyRecord]:
    """For each cell without any record in scope, a record that says that it is pending."""
    present = {record.key for record in within}
    absent = {record.key: record for record in records if record.key not in present}
    return [replace(record, status="pending", slot=None) for record in absent.values()]


class Group(NamedTuple):
    """The rows of one quantised model on one stream, and the slots that they have to fill."""

    id: GroupId
    rows: list[RowRecords]
    scope: list[Slot]


def _groups(layout: str, spec: TableSpec, records: Sequence[TidyRecord]) -> list[Group]:
    """The groups of a table, in the order of the YAML."""
    found = []
    for group, members in groupby(by_row(layout, records), key=lambda row: row.group):
        rows = list(members)
        own = [record for row in rows for record in row.records]
        found.append(Group(group, rows, _scope(spec, own)))
    return found


def _assemble(layout: str, spec: TableSpec, records: Sequence[TidyRecord], asked: Options) -> Table:
    """The table of the records in scope."""
    footnotes = Footnotes()
    reference = None if asked.reference is None else load(asked.reference)
    mixed = refuse_mixed(layout, records, asked.allow_mixed)
    marks = footnotes.mark(f"mixed on request: {'; '.join(mixed)}" if mixed else "")
    found = _groups(layout, spec, records)
    rows = [row for group in found for row in group.rows]
    quantizers = sorted({row.group.quantizer for row in rows if row.group.bits != "FP32"})

    def shown(group: Group) -> RowGroup:
        made = [_row(row, spec, group.scope, footnotes) for row in group.rows]
        own: Sequence[Row] = compared(made, group.rows, spec.columns, group.scope)
        if reference is not None:
            cited = [published_row(r, layout, spec.columns, reference, footnotes) for r in group.rows]
            own = [row for pair in zip(own, cited, strict=True) for row in pair if row is not None]
        return _row_group(group.id, own, name_quantizer=len(quantizers) > 1)

    groups = tuple(map(shown, found))
    return Table(
        layout=layout,
        label=f"tab:{layout}" if asked.label is None else asked.label,
        caption=f"{spec.caption} {stream_text(records)}" if asked.caption is None else asked.caption,
        columns=tuple(each.column for each in spec.columns),
        groups=groups,
        footnotes=tuple(footnotes.texts),
        notes=(*table_notes(rows, quantizers, groups, spec), *spec.notes, *reference_note(reference, groups)),
        marks=marks,
    )


def _row(row: RowRecords, spec: TableSpec, scope: Sequence[Slot], footnotes: Footnotes) -> Row:
    """One row; its label names everything that distinguishes it from other rows of the same method."""
    method, variant, reset, _, settings = row.id
    mark = footnotes.mark
    marks = (
        *mark(RESET if reset == "domain" else ""),
        *mark(skipped(row.records)),
        *mark(OTHER_CODE if any(record.other_code for record in row.records) else ""),
        *mark(MIXED_CODE if row.codes > 1 else ""),
    )
    entries = tuple(entry(row, column, scope, footnotes) for column in spec.columns)
    return Row(label_of(row.id), method, variant, reset, row.versions, entries, marks, settings=settings)


def _row_group(group: GroupId, rows: Sequence[Row], name_quantizer: bool) -> RowGroup:
    """The rows of one quantised model under a label, with the quantizer if the table has several."""
    suffix = f" ({group.quantizer})" if name_quantizer and group.bits != "FP32" else ""
    label = f"{group.model} {group.bits}{suffix}" + (f", {group.stream}" if group.stream else "")
    return RowGroup(label, group.model, group.quantizer, group.bits, tuple(rows), group.stream)
