"""Rows of published numbers, shown below the rows of ours that they belong to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tta_bench.tables.assembly.entries import Entries, Footnotes
from tta_bench.tables.layout import RowId
from tta_bench.tables.references.reference import Identity, Published, Reference, settings_of
from tta_bench.tables.table import Row, TableEntry


def cell_of(cell: Mapping[Any, Any]) -> Identity:
    """A cell, as references identify it."""
    plugins = (cell["data"], cell["model_plugin"], cell["bits"], cell["method_plugin"])
    stated = json.loads(cell.get("identity") or "{}")
    # The layout reset-vs-continual clears `reset` and keeps the protocol as the facet.
    reset = cell["reset"] or cell["facet"]
    return Identity(*plugins, cell["settings"], reset, stated and stated | {"key": cell["key"]})


class PublishedRows:
    """What a reference says about the rows of a table; `suffix` distinguishes it from other references."""

    def __init__(
        self, reference: Reference, layout: str, columns: Sequence[Entries], suffix: str = ""
    ) -> None:
        self.reference, self.layout, self.columns, self.suffix = reference, layout, columns, suffix
        self.shown: list[Published] = []
        pivot, facets = columns[0].pivot, {column.spec.facets for column in columns}
        self.cells = {each: pivot.first_cells(each).to_dict("index") for each in facets}

    def row(self, number: int, id: RowId, footnotes: Footnotes) -> Row | None:
        """The published numbers of a row of ours; None if there is none."""
        found = [self._number(number, column) for column in self.columns]
        if not any(found):
            return None
        self.shown += filter(None, found)
        entries = tuple(
            TableEntry(each.value, marks=footnotes.mark(each.note)) if each else TableEntry()
            for each in found
        )
        return Row(
            f"{id.method}, published{self.suffix}",
            id.method,
            id.variant,
            id.reset,
            "",
            entries,
            published=True,
        )

    def _number(self, number: int, column: Entries) -> Published | None:
        cell = self.cells[column.spec.facets].get(number)
        if column.spec.citation is None or cell is None:
            return None
        return self.reference.find(cell_of(cell), column.spec.citation, self.layout)

    @property
    def note(self) -> str:
        """Where the published rows come from, and how their numbers were made; known when all rows are."""
        if not self.shown:
            return f"No row is one that {self.reference.title} has."
        return " ".join([f"Published{self.suffix}: {self.reference.title}.", *settings_of(self.shown)])
