"""Layout `datasets`: one column per data set, from several benchmarks."""

from __future__ import annotations

from tta_bench.tables.layout import ColumnSpec, LayoutInput, TableSpec


def lay_out(given: LayoutInput) -> TableSpec:
    """The paper's table on further datasets, each at its own last round."""
    faceted = given.faceted(given.cells["data"])

    def score(name: str) -> ColumnSpec:
        own = faceted.within(faceted.slots["facet"] == name)
        return own.mean_accuracy(name, name, own.round, name)

    return TableSpec(
        caption="Accuracy (%) at the last round on each dataset.",
        columns=tuple(map(score, given.cells["data"].unique())),
        given=faceted,
    )
