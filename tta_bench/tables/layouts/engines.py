"""Layout `engines`: integer engines beside the simulation, with accuracy, agreement, time and memory."""

from __future__ import annotations

from pandas import DataFrame, Series

from tta_bench.tables.layout import ROW, ColumnSpec, LayoutInput, TableSpec, known, memory
from tta_bench.tables.table import Column

AGREEMENT = (
    "Agreement: calibration images on which an engine predicts the class of the simulation; a dash for the "
    "simulation."
)
TIME = "ms/image: wall time of prediction and adaptation, on the threads and the machine of the run."
RESIDENT = (
    "Resident: main memory of the process when the cell ended, with images and everything else that it holds."
)
PACKED = "Packed: codes, scales, zero points, all that stays FP32, and the method's state, counted."


def lay_out(given: LayoutInput) -> TableSpec:
    """Accuracy in a round, and what each engine needs for it."""
    here = given.within_round()
    score = here.mean_accuracy("accuracy", "Acc.", given.round)
    return TableSpec(
        caption=f"Integer engines: accuracy (%), time and memory at round {given.round}{given.severity}.",
        columns=(
            score,
            ColumnSpec(Column("agreement", "Agreement (%)", "count"), known("agreement"), fact=True),
            ColumnSpec(Column("milliseconds", "ms/image", "count"), _milliseconds, score.needs),
            memory("resident_mib", "Resident (MiB)"),
            memory("packed_mib", "Packed (MiB)"),
        ),
        notes=(AGREEMENT, TIME, RESIDENT, PACKED, *here.clean_note),
    )


def _milliseconds(records: DataFrame, _: DataFrame) -> Series:
    """Wall time for one image, over all images."""
    totals = records.groupby(ROW)[["seconds", "n"]].sum(min_count=1)
    return 1000 * totals["seconds"] / totals["n"]
