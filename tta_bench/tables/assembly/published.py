"""Rows of published numbers, shown below the rows of ours that they belong to."""

from __future__ import annotations

from collections.abc import Sequence

from tta_bench.tables.assembly.entries import Footnotes
from tta_bench.tables.assembly.layout_spec import ColumnSpec
from tta_bench.tables.assembly.records import TidyRecord
from tta_bench.tables.assembly.row_records import RowRecords
from tta_bench.tables.reference import Identity, Published, Reference
from tta_bench.tables.table import Row, RowGroup, TableEntry


def cell_of(record: TidyRecord) -> Identity:
    """The cell of a record, as references identify it."""
    plugins = (record.data, record.model_plugin, record.bits, record.method_plugin)
    # The layout reset-vs-continual clears `reset` and keeps the protocol as the facet.
    return Identity(*plugins, record.settings, record.reset or record.facet)


def published_row(
    row: RowRecords, layout: str, specs: Sequence[ColumnSpec], reference: Reference, footnotes: Footnotes
) -> Row | None:
    """What a reference says about a row of ours; None if it has no number for it."""
    found = [_number(row, layout, spec, reference) for spec in specs]
    if not any(found):
        return None
    entries = tuple(
        TableEntry(each.value, marks=footnotes.mark(each.note)) if each else TableEntry() for each in found
    )
    method, variant, reset, *_ = row.id
    return Row(f"{method}, published", method, variant, reset, "", entries, published=True)


def _number(row: RowRecords, layout: str, spec: ColumnSpec, reference: Reference) -> Published | None:
    records = row.narrowed(spec.facets).records
    if spec.citation is None or not records:
        return None
    return reference.find(cell_of(records[0]), spec.citation, layout)


def reference_note(reference: Reference | None, groups: Sequence[RowGroup]) -> tuple[str, ...]:
    """The note that says where published rows come from."""
    if reference is None:
        return ()
    if not any(row.published for group in groups for row in group.rows):
        return (f"No row is one that {reference.title} has.",)
    return (f"Published: {reference.title}.",)
