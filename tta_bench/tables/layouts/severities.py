"""Layout `severities`: one column per severity of a stream with several, and the average over all."""

from __future__ import annotations

from tta_bench.tables.layout import ColumnSpec, LayoutInput, TableSpec, accuracy
from tta_bench.tables.table import Column


def lay_out(given: LayoutInput) -> TableSpec:
    """The mean accuracy over all domains of each severity, at one round; all visits together."""
    here = given.within_round()
    found = sorted(set(here.slots["severity"]) - {0})
    if not found:
        raise given.error("the stream has no corruptions", "Choose another layout")
    average = here.mean_accuracy("average", "All", given.round, group="Severity")
    return TableSpec(
        caption=f"Accuracy (%) at each severity, round {given.round}.",
        columns=(*here.backprop(), *(_spec(severity, given.round) for severity in found), average),
        notes=("Visits of a severity count together.", *here.clean_note),
        shown=average.needs,
    )


def _spec(severity: int, round_: int) -> ColumnSpec:
    """The column of one severity."""
    return ColumnSpec(
        Column(f"severity_{severity}", str(severity), "accuracy", "Severity"),
        accuracy,
        lambda slots: (slots["round"] == round_) & (slots["severity"] == severity),
    )
