"""Rows of published numbers, shown below the rows of ours that they belong to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tta_bench.tables.assembly.entries import Entries, Footnotes
from tta_bench.tables.layout import RowId
from tta_bench.tables.reference import Identity, Published, Reference
from tta_bench.tables.table import Row, RowGroup, TableEntry


def cell_of(cell: Mapping[Any, Any]) -> Identity:
    """A cell, as references identify it."""
    plugins = (cell["data"], cell["model_plugin"], cell["bits"], cell["method_plugin"])
    # The layout reset-vs-continual clears `reset` and keeps the protocol as the facet.
    return Identity(*plugins, cell["settings"], cell["reset"] or cell["facet"])


class PublishedRows:
    """What a reference says about the rows of a table."""

    def __init__(self, reference: Reference, layout: str, columns: Sequence[Entries]) -> None:
        self.reference, self.layout, self.columns = reference, layout, columns
        pivot, facets = columns[0].pivot, {column.spec.facets for column in columns}
        self.cells = {each: pivot.first_cells(each).to_dict("index") for each in facets}

    def row(self, number: int, id: RowId, footnotes: Footnotes) -> Row | None:
        """The published numbers of a row of ours; None if there is none."""
        found = [self._number(number, column) for column in self.columns]
        if not any(found):
            return None
        entries = tuple(
            TableEntry(each.value, marks=footnotes.mark(each.note)) if each else TableEntry()
            for each in found
        )
        return Row(f"{id.method}, published", id.method, id.variant, id.reset, "", entries, published=True)

    def _number(self, number: int, column: Entries) -> Published | None:
        cell = self.cells[column.spec.facets].get(number)
        if column.spec.citation is None or cell is None:
            return None
        return self.reference.find(cell_of(cell), column.spec.citation, self.layout)


def reference_note(reference: Reference | None, groups: Sequence[RowGroup]) -> tuple[str, ...]:
    """The note that says where published rows come from."""
    if reference is None:
        return ()
    if not any(row.published for group in groups for row in group.rows):
        return (f"No row is one that {reference.title} has.",)
    return (f"Published: {reference.title}.",)
