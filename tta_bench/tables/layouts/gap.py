"""Layout `gap`: accuracy on clean and on corrupted images, and the difference."""

from __future__ import annotations

from pandas import DataFrame, Series

from tta_bench.tables.layout import ROW, ColumnSpec, LayoutInput, TableSpec, accuracy
from tta_bench.tables.table import Column

CLEAN = "clean"


def lay_out(given: LayoutInput) -> TableSpec:
    """The paper's motivation figure as a table."""
    if set(given.slots["corruption"] == CLEAN) != {True, False}:
        raise given.error(
            "it compares clean images with corrupted ones, and there is only one kind",
            "Run with stream.corruptions: [clean, imagenet-c-15]",
        )
    round_ = given.round

    def part(key: str, name: str, clean: bool) -> ColumnSpec:
        def needs(slots: DataFrame) -> Series:
            return (slots["round"] == round_) & ((slots["corruption"] == CLEAN) == clean)

        return ColumnSpec(Column(key, name, "accuracy"), accuracy, needs)

    gap = ColumnSpec(Column("gap", "Gap", "count"), loss, lambda slots: slots["round"] == round_)
    return TableSpec(
        caption=f"Accuracy (%) on clean (ID) and corrupted (OOD) images, round {round_}"
        f"{given.severity}, and the gap between them.",
        columns=(part("clean", "ID", True), part("corrupted", "OOD", False), gap),
    )


def loss(records: DataFrame, _: DataFrame) -> Series:
    """Mean accuracy on clean images minus that on corrupted ones."""
    clean = (records["corruption"] == CLEAN).rename("clean")
    means = records.groupby([*ROW, clean])["accuracy"].mean().unstack("clean").reindex(columns=[True, False])
    return means[True] - means[False]
