"""Notes under a table: what its intervals and marks mean."""

from __future__ import annotations

from collections.abc import Sequence

from tta_bench.tables.assembly.layout_spec import TableSpec
from tta_bench.tables.assembly.ranking import TIES, UNRANKED
from tta_bench.tables.assembly.row_records import RowRecords
from tta_bench.tables.table import RowGroup

OF_SEEDS = (
    "Mean ± half the 95 % interval over other seeds and other domains of this kind (two-way, from {seeds} "
    "seeds); in a column of one domain, over other seeds."
)
OF_ONE_SEED = (
    "Mean ± half the 95 % interval over other images of the same domains (batches of one seed, by domain); "
    "it does not tell how much other seeds would change."
)


def table_notes(
    rows: Sequence[RowRecords], quantizers: Sequence[str], groups: Sequence[RowGroup], spec: TableSpec
) -> list[str]:
    """The notes that apply to the whole table."""
    notes = [f"Quantizer: {quantizers[0]}."] if len(quantizers) == 1 and quantizers[0] else []
    entries = [entry for group in groups for row in group.rows for entry in row.entries]
    if any(entry.interval is not None for entry in entries):
        seeds = len(rows[0].cells)
        notes.append(OF_ONE_SEED if seeds == 1 else OF_SEEDS.format(seeds=seeds))
    if any(entry.best for entry in entries):
        notes.append(TIES)
    if any(_unranked(group, spec) for group in groups):
        notes.append(UNRANKED)
    used = {record.environment for row in rows for record in row.records if record.environment}
    if len(used) > 1:
        notes.append(
            f"Computed in {len(used)} environments, which may round differently: {' | '.join(sorted(used))}."
        )
    return notes


def _unranked(group: RowGroup, spec: TableSpec) -> bool:
    """Whether a column has several numbers of ours but no ranks."""
    own = [row for row in group.rows if not row.published]
    indices = [i for i, each in enumerate(spec.columns) if each.column.kind == "accuracy"]
    columns = [[row.entries[i] for row in own] for i in indices]
    return any(
        sum(entry.value is not None for entry in column) > 1 and not any(entry.rank for entry in column)
        for column in columns
    )
