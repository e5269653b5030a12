"""Layout `per-corruption`: one column per corruption, grouped as Noise, Blur, …, and the average."""

from __future__ import annotations

from tta_bench.corruptions.sets import GROUPS, SHORT_NAMES
from tta_bench.tables.layout import ColumnSpec, LayoutInput, TableSpec, accuracy
from tta_bench.tables.references.reference import Citation
from tta_bench.tables.table import Column

OTHER = "Other"


def lay_out(given: LayoutInput) -> TableSpec:
    """The paper's per-corruption tables."""
    round_, here = given.round, given.within_round()
    order = [*dict.fromkeys(GROUPS.values()), OTHER]
    # By group, and in the order of the YAML within a group.
    names = sorted(here.slots["corruption"].unique(), key=lambda name: order.index(GROUPS.get(name, OTHER)))
    average = here.mean_accuracy("average", "Acc.", round_, group="Average")
    return TableSpec(
        caption=f"Accuracy (%) per corruption at round {round_}{given.severity}.",
        columns=(*given.backprop(), *(_spec(name, round_) for name in names), average),
        notes=here.clean_note,
        shown=average.needs,
    )


def _spec(corruption: str, round_: int) -> ColumnSpec:
    """The column of one corruption."""
    return ColumnSpec(
        Column(
            corruption, SHORT_NAMES.get(corruption, corruption), "accuracy", GROUPS.get(corruption, OTHER)
        ),
        accuracy,
        lambda slots: (slots["round"] == round_) & (slots["corruption"] == corruption),
        citation=Citation("accuracy", corruption, round_),
    )
