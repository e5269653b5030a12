"""Notes under a table: what its intervals and marks mean."""

from __future__ import annotations

from collections.abc import Sequence

from tta_bench.tables.assembly.pivot import Pivot
from tta_bench.tables.assembly.ranking import TIES, UNRANKED
from tta_bench.tables.layout import ColumnSpec
from tta_bench.tables.table import RowGroup

OF_SEEDS = (
    "Mean ± half the 95 % interval over other seeds and other domains of this kind (two-way, from {seeds} "
    "seeds); in a column of one domain, over other seeds."
)
OF_ONE_SEED = (
    "Mean ± half the 95 % interval over other images of the same domains (batches of one seed, by domain); "
    "it does not tell how much other seeds would change."
)


def table_notes(pivot: Pivot, columns: Sequence[ColumnSpec], groups: Sequence[RowGroup]) -> list[str]:
    """The notes that apply to the whole table."""
    quantizers = quantizers_of(pivot)
    notes = [f"Quantizer: {quantizers[0]}."] if len(quantizers) == 1 and quantizers[0] else []
    entries = [entry for group in groups for row in group.rows for entry in row.entries]
    if any(entry.interval is not None for entry in entries):
        seeds = len(pivot.seeds)
        notes.append(OF_ONE_SEED if seeds == 1 else OF_SEEDS.format(seeds=seeds))
    if any(entry.best for entry in entries):
        notes.append(TIES)
    if any(_unranked(group, columns) for group in groups):
        notes.append(UNRANKED)
    used = set(pivot.cells["environment"]) - {""}
    if len(used) > 1:
        notes.append(
            f"Computed in {len(used)} environments, which may round differently: {' | '.join(sorted(used))}."
        )
    return notes


def quantizers_of(pivot: Pivot) -> list[str]:
    """The quantizers of a table."""
    return sorted({group.quantizer for group in pivot.groups if group.bits != "FP32"})


def _unranked(group: RowGroup, columns: Sequence[ColumnSpec]) -> bool:
    """Whether a column has several numbers of ours but no ranks."""
    own = [row for row in group.rows if not row.published]
    indices = [i for i, each in enumerate(columns) if each.column.kind == "accuracy"]
    found = [[row.entries[i] for row in own] for i in indices]
    return any(
        sum(entry.value is not None for entry in column) > 1 and not any(entry.rank for entry in column)
        for column in found
    )
