"""Clean and corrupted accuracy and their difference: what quantisation costs out of distribution."""

from __future__ import annotations

from collections.abc import Sequence

from tta_bench.layouts.plan import Options, Plan, Spec, accuracy, chosen_round, severity_text
from tta_bench.layouts.records import Record, slots
from tta_bench.layouts.types import Column, TableError

CLEAN = "clean"


def lay_out(layout: str, records: Sequence[Record], options: Options) -> Plan:
    """The plan of the paper's motivation figure, as a table."""
    found = slots(records)
    kinds = {slot.corruption == CLEAN for slot in found}
    if kinds != {True, False}:
        raise TableError(
            f"table {layout}",
            "it compares clean images with corrupted ones, and there is only one kind",
            "Run with stream.corruptions: [clean, imagenet-c-15]",
        )
    round_ = chosen_round(layout, records, options.round)
    clean = Spec(
        Column("clean", "ID", "accuracy"),
        accuracy,
        lambda slot: slot.round == round_ and slot.corruption == CLEAN,
    )
    corrupted = Spec(
        Column("corrupted", "OOD", "accuracy"),
        accuracy,
        lambda slot: slot.round == round_ and slot.corruption != CLEAN,
    )
    gap = Spec(Column("gap", "Gap", "count"), difference, lambda slot: slot.round == round_)
    return Plan(
        caption=f"Accuracy (%) on clean (ID) and corrupted (OOD) images, round {round_}"
        f"{severity_text(records)}, and the gap between them.",
        specs=(clean, corrupted, gap),
    )


def difference(records: Sequence[Record]) -> float | None:
    """Points lost from clean to corrupted images."""
    clean = [r for r in records if r.slot is not None and r.slot.corruption == CLEAN]
    rest = [r for r in records if r.slot is not None and r.slot.corruption != CLEAN]
    before, after = accuracy(clean), accuracy(rest)
    return None if before is None or after is None else before - after
