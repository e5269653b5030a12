"""One column per corruption, under Noise, Blur, Weather and Digital, and their average."""

from __future__ import annotations

from collections.abc import Sequence

from tta_bench.corruptions.sets import GROUPS, SHORT_NAMES
from tta_bench.layouts.plan import (
    Cite,
    Options,
    Plan,
    Spec,
    accuracy,
    averaged_at,
    backprop,
    chosen_round,
    clean_note,
    severity_text,
)
from tta_bench.layouts.records import Record, Slot, slots
from tta_bench.layouts.types import Column

OTHER = "Other"


def lay_out(layout: str, records: Sequence[Record], options: Options) -> Plan:
    """The plan of the paper's per-corruption tables."""
    found = slots(records)
    round_ = chosen_round(layout, records, options.round)
    here = [slot for slot in found if slot.round == round_]
    average = Spec(
        Column("average", "Acc.", "accuracy", "Average"),
        accuracy,
        averaged_at(here, round_),
        cites=Cite("accuracy", "average", round_),
    )
    return Plan(
        caption=f"Accuracy (%) per corruption at round {round_}{severity_text(records)}.",
        specs=(*backprop(records), *(_spec(name, round_) for name in _grouped(here)), average),
        notes=clean_note(here),
    )


def _spec(corruption: str, round_: int) -> Spec:
    """The column of one corruption."""
    name = SHORT_NAMES.get(corruption, corruption)
    return Spec(
        Column(corruption, name, "accuracy", GROUPS.get(corruption, OTHER)),
        accuracy,
        lambda slot: slot.round == round_ and slot.corruption == corruption,
        cites=Cite("accuracy", corruption, round_),
    )


def _grouped(found: Sequence[Slot]) -> list[str]:
    """Corruptions with those of one group side by side, else in the order of the YAML."""
    order = [*dict.fromkeys(GROUPS.values()), OTHER]
    names = dict.fromkeys(slot.corruption for slot in found)
    return sorted(names, key=lambda name: order.index(GROUPS.get(name, OTHER)))
