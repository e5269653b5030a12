"""Layout `worst-domain`: the accuracy on the domain that a method finds hardest, beside the mean."""

from pandas import DataFrame, Series

from tta_bench.tables.layout import ROW, ColumnSpec, LayoutInput, TableSpec
from tta_bench.tables.table import Column


def worst(records: DataFrame, cells: DataFrame) -> Series:
    """The lowest accuracy of any domain, for each row and seed."""
    return records.groupby(ROW)["accuracy"].min()


def lay_out(given: LayoutInput) -> TableSpec:
    """The worst domain at the last round."""
    shown = given.average(given.round)
    lowest = ColumnSpec(Column("worst", "Worst", "score"), worst, shown)
    return TableSpec(
        caption=f"Accuracy (%) of the worst domain and of all, round {given.round}{given.severity}.",
        columns=(lowest, given.mean_accuracy("accuracy", "Acc.", given.round)),
        notes=given.clean_note,
    )
