"""One column per round of continual adaptation, and their average."""

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
    clean_note,
    per_image,
    rank_of,
    severity_text,
)
from tta_bench.layouts.records import Record, Slot, slots
from tta_bench.layouts.types import Column, TableError


def lay_out(layout: str, records: Sequence[Record], options: Options) -> Plan:
    """The plan of the paper's long-term tables."""
    if options.round is not None:
        raise TableError(f"table {layout}", "it shows every round", "Leave out the option round")
    found = slots(records)
    counts = averaged(found)
    passes = Spec(Column("forwards", "#FP", "count"), per_image("forwards"), counts, cites=Cite("forwards"))
    average = Spec(
        Column("average", "Average", "accuracy"), accuracy, counts, cites=Cite("accuracy", "average", "all")
    )
    rounds = sorted({slot.round for slot in found})
    return Plan(
        caption=f"Mean accuracy (%) at each round of adaptation{severity_text(records)}.",
        specs=(passes, *(_spec(number, found) for number in rounds), average, rank_of("average")),
        notes=("#FP: forward passes per image, counted.", *clean_note(found)),
    )


def _spec(round_: int, found: Sequence[Slot]) -> Spec:
    """The column of one round."""
    return Spec(
        Column(f"round_{round_}", str(round_), "accuracy"),
        accuracy,
        averaged_at(found, round_),
        cites=Cite("accuracy", "average", round_),
    )
