"""Layout `gap`: accuracy on clean and on corrupted images, and the difference."""

from __future__ import annotations

from tta_bench.tables.assembly.layout_spec import ColumnSpec, LayoutInput, TableSpec, accuracy, difference
from tta_bench.tables.assembly.records import Slot, TidyRecord
from tta_bench.tables.table import Column

CLEAN = "clean"


def lay_out(given: LayoutInput) -> TableSpec:
    """The paper's motivation figure as a table."""
    if {slot.corruption == CLEAN for slot in given.slots} != {True, False}:
        raise given.error(
            "it compares clean images with corrupted ones, and there is only one kind",
            "Run with stream.corruptions: [clean, imagenet-c-15]",
        )
    round_ = given.round

    def part(key: str, name: str, clean: bool) -> ColumnSpec:
        def needs(slot: Slot) -> bool:
            return slot.round == round_ and (slot.corruption == CLEAN) == clean

        return ColumnSpec(Column(key, name, "accuracy"), accuracy, needs)

    def is_clean(record: TidyRecord) -> bool:
        return record.slot is not None and record.slot.corruption == CLEAN

    gap = difference("gap", "Gap", is_clean, (True, False), lambda slot: slot.round == round_)
    return TableSpec(
        caption=f"Accuracy (%) on clean (ID) and corrupted (OOD) images, round {round_}"
        f"{given.severity}, and the gap between them.",
        columns=(part("clean", "ID", True), part("corrupted", "OOD", False), gap),
    )
