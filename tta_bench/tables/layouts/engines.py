"""Layout `engines`: integer engines beside the simulation, with accuracy, agreement, time and memory."""

from __future__ import annotations

from tta_bench.tables.layout import ColumnSpec, LayoutInput, TableSpec, known, memory
from tta_bench.tables.table import Column

AGREEMENT = (
    "Agreement: calibration images on which an engine predicts the class of the simulation; a dash for the "
    "simulation."
)
MEMORY = (
    "Memory: peak live tensors of one adaptation step, counted; quantised models by ideal scaling (bits/32)."
)
PACKED = "Packed: codes, scales, zero points, all that stays FP32, and the method's state, counted."
RESIDENT = (
    "Resident: main memory that the network added to its process when it was loaded, measured; without "
    "activations and the state of the method."
)
TIME = "ms/image: wall time of prediction and adaptation."


def lay_out(given: LayoutInput) -> TableSpec:
    """Accuracy in a round, and what each engine needs for it."""
    here = given.within_round()
    score = here.mean_accuracy("accuracy", "Acc.", given.round)
    agreed = Column("agreement", "Agreement (%)", "count")
    return TableSpec(
        caption=f"Integer engines: accuracy (%), time and memory at round {given.round}{given.severity}.",
        columns=(
            score,
            ColumnSpec(agreed, known("agreement"), fact=True, optional=True),
            memory("memory_mib", "Memory (MiB)"),
            memory("packed_mib", "Packed (MiB)"),
            memory("resident_mib", "Resident (MiB)"),
        ),
        notes=(AGREEMENT, MEMORY, PACKED, RESIDENT, TIME, *here.clean_note),
        further=("ms_per_image",),
        shown=score.needs,
    )
