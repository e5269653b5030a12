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
    backprop,
    chosen_round,
    clean_note,
    fact,
    per_image,
    severity_text,
    tick,
)
from tta_bench.layouts.records import Record, Slot, slots
from tta_bench.layouts.types import Column

LEGEND = (
    "ZO: zeroth-order optimiser. DRL: continual domain reprogramming learning (stored domain vectors). "
    "DKM: domain knowledge management (of the two most similar vectors, one is dropped)."
)


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
        specs=(passes, *backprop(records), *_parts(records), *rounds, memory),
        notes=("#FP: forward passes per image, counted.", *_legend(records), *clean_note(found)),
    )


def _parts(records: Sequence[Record]) -> tuple[Spec, ...]:
    """The paper's ticks, where any method of the table has such a part."""
    if not any(zeroth_order(record) for record in records):
        return ()
    return (
        tick("zeroth_order", "ZO", zeroth_order),
        tick("domain_learning", "DRL", reuses_domains),
        tick("domain_management", "DKM", manages_domains),
    )


def _legend(records: Sequence[Record]) -> tuple[str, ...]:
    return (LEGEND,) if _parts(records) else ()


def zeroth_order(record: Record) -> bool:
    """Whether a method estimates gradients from perturbations: it has their size and distribution."""
    return {"c", "distribution"} <= record.settings.keys()


def reuses_domains(record: Record) -> bool:
    """Whether it starts from stored domain vectors."""
    return zeroth_order(record) and record.settings.get("bank_size", 0) > 0


def manages_domains(record: Record) -> bool:
    """Whether a full bank drops one of its two most similar vectors."""
    return reuses_domains(record) and record.settings.get("bank_policy") == "similar"
