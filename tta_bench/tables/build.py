"""A tidy frame becomes a Table: `build(frame, layout)`. `render` turns it into text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from itertools import groupby
from typing import TYPE_CHECKING, Any

from tta_bench.errors import suggest
from tta_bench.plugins import registry
from tta_bench.tables.assembly.entries import Entries, Footnotes, skipped
from tta_bench.tables.assembly.notes import quantizers_of, table_notes
from tta_bench.tables.assembly.pivot import Pivot
from tta_bench.tables.assembly.published import PublishedRows
from tta_bench.tables.assembly.ranking import compared, complete_evidence
from tta_bench.tables.assembly.rows import GroupId
from tta_bench.tables.assembly.star import star
from tta_bench.tables.further import with_further
from tta_bench.tables.layout import LayoutInput, Options, TableSpec
from tta_bench.tables.references import load
from tta_bench.tables.table import Row, RowGroup, Table, TableError
from tta_bench.tables.ties import ties

if TYPE_CHECKING:
    from pandas import DataFrame

RESET = "model reset after each domain"
MIXED_CODE = "its seeds were computed by different code of its plugins"
OTHER_CODE = "computed by other code of its plugins than is installed now (--keep-stale)"


def build(frame: DataFrame, layout: str, **options: Any) -> Table:
    """The table that a layout makes from a tidy frame; `options` are the fields of `Options`."""
    return assemble(frame, layout, **options).table()


def tied(frame: DataFrame, layout: str, column: str, **options: Any) -> list[list[int] | None]:
    """For each row of a table, the rows of all groups near it that are tied with it in a column.

    None for a row that is not complete or has too little data. `ties` says which rows are near.
    """
    return assemble(frame, layout, **options).tied(column)


def assemble(frame: DataFrame, layout: str, **options: Any) -> Assembly:
    """What `build` and `tied` take their answers from."""
    _check_known("layout", layout, registry.names("layouts"))
    for name in options:
        _check_known("option", name, [field.name for field in fields(Options)])
    given = star(frame, layout, Options(**options))
    return Assembly(given, registry.load("layouts", layout)(given))


def _check_known(what: str, name: str, names: list[str]) -> None:
    """Raise an error if there is no such name."""
    if name not in names:
        raise TableError("table", f'unknown {what} "{name}"', suggest(name, names, "There are"))


class Assembly:
    """The table of a specification while it is made."""

    def __init__(self, given: LayoutInput, spec: TableSpec) -> None:
        self.asked, self.layout, self.spec = given.options, given.layout, spec
        columns = tuple(with_further(given, spec))
        self.pivot = Pivot(spec.given or given, columns)
        self.columns = [Entries(self.pivot, column) for column in columns]
        self.footnotes = Footnotes()

    def tied(self, key: str) -> list[list[int] | None]:
        """For each row, the rows of all groups near it that are tied with it in a column."""
        column = next(column for column in self.columns if column.spec.column.key == key)
        found = complete_evidence(column, range(len(self.pivot.rows)))
        return ties(found, [row.group for row in self.pivot.rows])

    def table(self) -> Table:
        """The table."""
        asked, spec = self.asked, self.spec
        mixed = "; ".join(self.pivot.mixed)
        marks = self.footnotes.mark(f"mixed on request: {mixed}" if mixed else "")
        published = self._published(asked.references)
        groups = tuple(self._groups(published))
        notes = table_notes(self.pivot, [each.spec for each in self.columns], groups)
        return Table(
            layout=self.layout,
            label=f"tab:{self.layout}" if asked.label is None else asked.label,
            caption=f"{spec.caption} {self._stream()}" if asked.caption is None else asked.caption,
            columns=tuple(each.spec.column for each in self.columns),
            groups=groups,
            footnotes=tuple(self.footnotes.numbers),
            notes=(*notes, *spec.notes, *(each.note for each in published)),
            marks=marks,
        )

    def _published(self, names: Sequence[str]) -> list[PublishedRows]:
        """What each reference says about the rows."""
        suffixes = [f" in {name}" if len(names) > 1 else "" for name in names]
        pairs = zip(map(load, names), suffixes, strict=True)
        return [PublishedRows(found, self.layout, self.columns, suffix) for found, suffix in pairs]

    def _groups(self, published: Sequence[PublishedRows]) -> list[RowGroup]:
        """The rows by quantised model; ours, each followed by the published numbers for it."""
        facts, name_quantizer = self._facts(), len(quantizers_of(self.pivot)) > 1
        found = []
        for group, members in groupby(range(len(self.pivot.rows)), lambda row: self.pivot.rows[row].group):
            numbers = list(members)
            ids = [self.pivot.rows[number].id for number in numbers]
            own: Sequence[Row] = compared(
                [self._row(number, facts) for number in numbers], ids, numbers[0], self.columns
            )
            if published:
                cited = [
                    [each.row(n, id, self.footnotes) for each in published]
                    for n, id in zip(numbers, ids, strict=True)
                ]
                own = [row for mine, others in zip(own, cited, strict=True) for row in (mine, *others) if row]
            found.append(_row_group(group, own, name_quantizer))
        return found

    def _facts(self) -> dict[str, Any]:
        """What footnotes and labels say about rows, by row."""
        cells = self.pivot.cells
        by_row = cells.groupby("row")
        codes = cells.groupby(["row", "facet"])["code"].nunique().groupby("row").max()
        versions = by_row["version"].agg(lambda each: ", ".join(sorted(set(each) - {""})))
        return {
            "skipped": skipped(self.pivot.ok),
            "other_code": by_row["other_code"].any().to_numpy(),
            "engines": by_row["engine_note"].agg(lambda each: "; ".join(sorted(set(each) - {""}))).to_numpy(),
            "codes": codes.to_numpy(),
            "versions": versions.to_numpy(),
        }

    def _row(self, number: int, facts: dict[str, Any]) -> Row:
        """One row; its label names everything that distinguishes it from other rows of the same method."""
        id, mark = self.pivot.rows[number].id, self.footnotes.mark
        marks = (
            *mark(RESET if id.reset == "domain" else ""),
            *mark(facts["skipped"].get(number, "")),
            *mark(facts["engines"][number]),
            *mark(OTHER_CODE if facts["other_code"][number] else ""),
            *mark(MIXED_CODE if facts["codes"][number] > 1 else ""),
        )
        entries = tuple(column.entry(number, self.footnotes) for column in self.columns)
        versions = facts["versions"][number]
        return Row(id.label, id.method, id.variant, id.reset, versions, entries, marks, settings=id.settings)

    def _stream(self) -> str:
        """The data behind the numbers: its name, images per domain, batch size, and its note."""
        cells, images = self.pivot.cells, sorted(map(int, self.pivot.images))
        between = f"{images[0]:,}–{images[-1]:,}" if len(images) > 1 else f"{images[0]:,}" if images else ""
        batches = ", ".join(map(str, sorted(cells["batch_size"].unique())))
        parts = [", ".join(cells["data"].unique()), f"{between} images per domain" if images else ""]
        notes = [note.rstrip(".") for note in cells["data_note"].unique() if note]
        return ". ".join([", ".join(filter(None, [*parts, f"batches of {batches}"])), *notes]) + "."


def _row_group(group: GroupId, rows: Sequence[Row], name_quantizer: bool) -> RowGroup:
    """The rows of one quantised model under a label, with the quantizer if the table has several."""
    suffix = f" ({group.quantizer})" if name_quantizer and group.bits != "FP32" else ""
    label = f"{group.model} {group.bits}{suffix}" + (f", {group.stream}" if group.stream else "")
    return RowGroup(label, group.model, group.quantizer, group.bits, tuple(rows), group.stream)
