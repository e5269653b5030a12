"""What a method costs, in passes and memory, beside what it brings in the last round."""

from __future__ import annotations

from collections.abc import Sequence

from tta_bench.layouts.plan import (
    Cite,
    Options,
    Plan,
    Spec,
    accuracy,
    averaged,
    chosen_round,
    clean_note,
    fact,
    per_image,
    rank_of,
    severity_text,
    tick,
)
from tta_bench.layouts.records import Record, Slot, slots
from tta_bench.layouts.types import Column

PASSES = "#FP, #BP: forward and backward passes per image, counted."
MEMORY = "Memory: peak live tensors of one adaptation step, counted"
IDEAL = "; quantised models by ideal scaling (bits/32)"
PACKED = (
    "Packed: what is stored between steps, namely integer codes, scales, zero points, all that stays FP32, "
    "and the method's state."
)
MEASURED = "Measured: the peak that CUDA reported."


def lay_out(layout: str, records: Sequence[Record], options: Options) -> Plan:
    """The plan of the paper's cost table, with packed and, where there is one, measured memory."""
    found = slots(records)
    round_ = chosen_round(layout, records, options.round)
    here = [slot for slot in found if slot.round == round_]
    measured = any(record.measured_mib is not None for record in records)
    return Plan(
        caption=f"Cost, and mean accuracy (%) at round {round_}{severity_text(records)}.",
        specs=(*_passes(here, round_), *_memory(measured)),
        notes=(*_notes(records, measured), *clean_note(here)),
    )


def _passes(here: Sequence[Slot], round_: int) -> tuple[Spec, ...]:
    """Passes and accuracy, over the same records."""
    counts, places = averaged(here), frozenset(here)

    def needs(slot: Slot) -> bool:
        return slot in places and counts(slot)

    return (
        tick("backprop", "BP", lambda record: record.backprop),
        Spec(Column("forwards", "#FP", "count"), per_image("forwards"), needs, cites=Cite("forwards")),
        Spec(Column("backwards", "#BP", "count"), per_image("backwards"), needs, cites=Cite("backwards")),
        Spec(
            Column("accuracy", "Acc.", "accuracy"),
            accuracy,
            needs,
            cites=Cite("accuracy", "average", round_),
        ),
        rank_of("accuracy"),
    )


def _memory(measured: bool) -> tuple[Spec, ...]:
    """The three memories, never merged; an all-empty measured column is left out."""
    names = {"memory_mib": "Memory (MiB)", "packed_mib": "Packed (MiB)"}
    if measured:
        names["measured_mib"] = "Measured (MiB)"
    return tuple(
        Spec(Column(key, name, "memory"), fact(key), fact=True, cites=Cite(key))
        for key, name in names.items()
    )


def _notes(records: Sequence[Record], measured: bool) -> tuple[str, ...]:
    """What each cost column means."""
    quantised = any(record.bits != "FP32" for record in records)
    memory = f"{MEMORY}{IDEAL if quantised else ''}."
    return (PASSES, memory, PACKED, *((MEASURED,) if measured else ()))
