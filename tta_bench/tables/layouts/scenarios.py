"""Layout `scenarios`: one column per scenario (or other stream) of a benchmark, one row per method."""

from __future__ import annotations

from tta_bench.tables.layout import ColumnSpec, LayoutInput, TableSpec


def lay_out(given: LayoutInput) -> TableSpec:
    """The mean accuracy over all domains of the last round, in every scenario."""
    streams = given.cells["stream"]
    faceted = given.faceted(streams, stream="", arrival=streams)

    def score(name: str) -> ColumnSpec:
        own = faceted.within(faceted.slots["facet"] == name)
        return own.mean_accuracy(name or "accuracy", name or "Acc.", own.round, name)

    return TableSpec(
        caption="Accuracy (%) at the last round in each scenario.",
        columns=(*faceted.backprop(), *map(score, streams.unique())),
        notes=("A scenario's accuracy is the mean over its domains.",),
        given=faceted,
    )
