"""Layout `pairs`: paired differences of all methods, with intervals and p-values."""

from __future__ import annotations

from dataclasses import replace

from tta_bench.tables.assembly.layout_spec import ColumnSpec, LayoutInput, TableSpec, rank_of, unmeasured
from tta_bench.tables.assembly.records import RowId
from tta_bench.tables.assembly.row_records import by_row, label_of
from tta_bench.tables.table import Column

NOTE = (
    "Row minus column, paired, with its 95 % interval and its p-value; p-values are corrected for the number "
    "of pairs of a group (Holm), intervals are not."
)


def lay_out(given: LayoutInput) -> TableSpec:
    """A matrix with methods as rows and as columns."""
    score = replace(given.mean_accuracy("accuracy", "Acc.", given.round), citation=None)

    def versus(row: RowId) -> ColumnSpec:
        key = f"minus {label_of(row)}" + (" (reset)" if row.reset == "domain" else "")
        column = Column(key, f"− {label_of(row)}", "difference")
        return ColumnSpec(column, unmeasured, score.needs, compares=row)

    methods = dict.fromkeys(row.id for row in by_row(given.layout, given.records))
    return TableSpec(
        caption=f"Paired differences of mean accuracy (points) at round {given.round}{given.severity}.",
        columns=(score, rank_of("accuracy"), *map(versus, methods)),
        notes=(NOTE, *given.clean_note),
    )
