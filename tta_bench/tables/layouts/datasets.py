"""Layout `datasets`: one column per data set, from several benchmarks."""

from __future__ import annotations

from dataclasses import replace

from tta_bench.tables.assembly.layout_spec import ColumnSpec, LayoutInput, TableSpec


def lay_out(given: LayoutInput) -> TableSpec:
    """The paper's table on further datasets, each at its own last round."""
    names = dict.fromkeys(record.data for record in given.records)
    faceted = [record.on(record.data) for record in given.records]

    def score(name: str) -> ColumnSpec:
        own = replace(given, records=[record for record in faceted if record.facet == name])
        return own.mean_accuracy(name, name, own.round, name)

    return TableSpec(
        caption="Accuracy (%) at the last round on each dataset.",
        columns=tuple(map(score, names)),
        records=faceted,
    )
