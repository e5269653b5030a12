"""Layout `pairs`: paired differences of all methods, with intervals and p-values."""

from __future__ import annotations

from dataclasses import replace

from tta_bench.tables.assembly.rows import with_rows
from tta_bench.tables.layout import ColumnSpec, LayoutInput, RowId, TableSpec, rank_of
from tta_bench.tables.table import Column

NOTE = (
    "Row minus column, paired, with its 95 % interval and its p-value; p-values are corrected for the number "
    "of pairs of a group (Holm), intervals are not."
)


def lay_out(given: LayoutInput) -> TableSpec:
    """A matrix with methods as rows and as columns."""
    score = replace(given.mean_accuracy("accuracy", "Acc.", given.round), citation=None)

    def versus(row: RowId) -> ColumnSpec:
        key = f"minus {row.label}" + (" (reset)" if row.reset == "domain" else "")
        return ColumnSpec(Column(key, f"− {row.label}", "difference"), needs=score.needs, compares=row)

    methods = dict.fromkeys(row.id for row in with_rows(given)[1])
    return TableSpec(
        caption=f"Paired differences of mean accuracy (points) at round {given.round}{given.severity}.",
        columns=(score, rank_of("accuracy"), *map(versus, methods)),
        notes=(NOTE, *given.clean_note),
    )
