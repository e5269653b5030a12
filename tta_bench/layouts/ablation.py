"""What each part of a method adds: the first and the last round, row by row, beside passes and memory."""

from __future__ import annotations

from collections.abc import Sequence

from tta_bench.layouts.plan import (
    Cite,
    Options,
    Plan,
    Spec,
    accuracy,
    averaged,
    averaged_at,
    chosen_round,
    clean_note,
    fact,
    per_image,
    severity_text,
)
from tta_bench.layouts.records import Record, Slot, slots
from tta_bench.layouts.types import Column


def lay_out(layout: str, records: Sequence[Record], options: Options) -> Plan:
    """The plan of the paper's ablation tables: R1, the last round, and what the rounds between brought."""
    found = slots(records)
    last = chosen_round(layout, records, options.round)
    counts = averaged(found)

    def at(number: int) -> Spec:
        return Spec(
            Column(f"round_{number}", f"R{number}", "accuracy"),
            accuracy,
            averaged_at(found, number),
            cites=Cite("accuracy", "average", number),
        )

    def both(slot: Slot) -> bool:
        return slot.round in (1, last) and counts(slot)

    def gained(found: Sequence[Record]) -> float | None:
        first, final = (
            accuracy([r for r in found if r.slot is not None and r.slot.round == number])
            for number in (1, last)
        )
        return None if first is None or final is None else final - first

    passes = Spec(Column("forwards", "#FP", "count"), per_image("forwards"), both, cites=Cite("forwards"))
    gain = Spec(Column("gain", "Gain", "count"), gained, both)
    memory = Spec(
        Column("memory_mib", "Memory (MiB)", "memory"),
        fact("memory_mib"),
        fact=True,
        cites=Cite("memory_mib"),
    )
    rounds = (at(1), at(last), gain) if last > 1 else (at(1),)
    return Plan(
        caption=f"Mean accuracy (%) at the first and the last round{severity_text(records)}.",
        specs=(passes, *rounds, memory),
        notes=("#FP: forward passes per image, counted.", *clean_note(found)),
    )
