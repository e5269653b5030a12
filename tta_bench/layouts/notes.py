"""Notes under a table: what its intervals, marks and published rows mean."""

from __future__ import annotations

from collections.abc import Sequence

from tta_bench.layouts.lines import Line
from tta_bench.layouts.plan import Plan
from tta_bench.layouts.ranking import TIES, UNRANKED
from tta_bench.layouts.types import RowGroup
from tta_bench.reference import Reference

OF_SEEDS = (
    "Mean ± half the 95 % interval over other seeds and other domains of this kind (two-way, from {seeds} "
    "seeds); in a column of one domain, over other seeds."
)
OF_ONE_SEED = (
    "Mean ± half the 95 % interval over other images of the same domains (batches of one seed, by domain); "
    "it does not tell how much other seeds would change."
)


def notes_on(
    found: Sequence[Line], quantizers: Sequence[str], groups: Sequence[RowGroup], plan: Plan
) -> list[str]:
    """What holds for the whole table."""
    notes = [f"Quantizer: {quantizers[0]}."] if len(quantizers) == 1 and quantizers[0] else []
    items = [item for group in groups for row in group.rows for item in row.entries]
    if any(item.interval is not None for item in items):
        seeds = len(found[0].cells)
        notes.append(OF_ONE_SEED if seeds == 1 else OF_SEEDS.format(seeds=seeds))
    if any(item.best for item in items):
        notes.append(TIES)
    if any(_unranked(group, plan) for group in groups):
        notes.append(UNRANKED)
    used = {record.environment for line in found for record in line.records if record.environment}
    if len(used) > 1:
        notes.append(
            f"Computed in {len(used)} environments, which may round differently: {' | '.join(sorted(used))}."
        )
    return notes


def _unranked(group: RowGroup, plan: Plan) -> bool:
    """Whether a column has several numbers of ours, and no rank."""
    own = [row for row in group.rows if not row.published]
    columns = [i for i, spec in enumerate(plan.specs) if spec.column.kind == "accuracy"]
    entries = [[row.entries[i] for row in own] for i in columns]
    return any(
        sum(item.value is not None for item in column) > 1 and not any(item.rank for item in column)
        for column in entries
    )


def cited(reference: Reference | None, groups: Sequence[RowGroup]) -> tuple[str, ...]:
    """Where published rows are from."""
    if reference is None:
        return ()
    if not any(row.published for group in groups for row in group.rows):
        return (f"No row is one that {reference.title} has.",)
    return (f"Published: {reference.title}.",)
