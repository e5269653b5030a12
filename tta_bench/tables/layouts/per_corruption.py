"""Layout `per-corruption`: one column per corruption, grouped as Noise, Blur, …, and the average."""

from __future__ import annotations

from collections.abc import Sequence

from tta_bench.corruptions.sets import GROUPS, SHORT_NAMES
from tta_bench.tables.assembly.layout_spec import ColumnSpec, LayoutInput, TableSpec, accuracy
from tta_bench.tables.assembly.records import Slot
from tta_bench.tables.reference import Citation
from tta_bench.tables.table import Column

OTHER = "Other"


def lay_out(given: LayoutInput) -> TableSpec:
    """The paper's per-corruption tables."""
    round_, here = given.round, given.within_round()
    average = here.mean_accuracy("average", "Acc.", round_, group="Average")
    return TableSpec(
        caption=f"Accuracy (%) per corruption at round {round_}{given.severity}.",
        columns=(*given.backprop(), *(_spec(name, round_) for name in _grouped(here.slots)), average),
        notes=here.clean_note,
    )


def _spec(corruption: str, round_: int) -> ColumnSpec:
    """The column of one corruption."""
    name = SHORT_NAMES.get(corruption, corruption)
    return ColumnSpec(
        Column(corruption, name, "accuracy", GROUPS.get(corruption, OTHER)),
        accuracy,
        lambda slot: slot.round == round_ and slot.corruption == corruption,
        citation=Citation("accuracy", corruption, round_),
    )


def _grouped(found: Sequence[Slot]) -> list[str]:
    """Corruptions by group, and in the order of the YAML within a group."""
    order = [*dict.fromkeys(GROUPS.values()), OTHER]
    names = dict.fromkeys(slot.corruption for slot in found)
    return sorted(names, key=lambda name: order.index(GROUPS.get(name, OTHER)))
