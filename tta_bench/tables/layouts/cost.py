"""Layout `cost`: passes, memory, and the accuracy in the last round."""

from __future__ import annotations

from tta_bench.tables.layout import LayoutInput, TableSpec, memory, passes, rank_of, tick

PASSES = "#FP, #BP: forward and backward passes per image, counted."
MEMORY = "Memory: peak live tensors of one adaptation step, counted"
IDEAL = "; quantised models by ideal scaling (bits/32)"
PACKED = (
    "Packed: what is stored between steps, namely integer codes, scales, zero points, all that stays FP32, "
    "and the method's state."
)
MEASURED = "Measured: the peak that CUDA reported."


def lay_out(given: LayoutInput) -> TableSpec:
    """The paper's cost table, with packed memory and, if there is any, measured memory."""
    here = given.within_round()
    score = here.mean_accuracy("accuracy", "Acc.", given.round)
    names = {"memory_mib": "Memory (MiB)", "packed_mib": "Packed (MiB)"}
    if measured := given.cells["measured_mib"].notna().any():
        names["measured_mib"] = "Measured (MiB)"
    counted = f"{MEMORY}{IDEAL if (given.cells['bits'] != 'FP32').any() else ''}."
    return TableSpec(
        caption=f"Cost, and mean accuracy (%) at round {given.round}{given.severity}.",
        columns=(
            tick("backprop", "BP"),
            passes("forwards", "#FP", score.needs),
            passes("backwards", "#BP", score.needs),
            score,
            rank_of("accuracy"),
            *(memory(key, name) for key, name in names.items()),
        ),
        notes=(PASSES, counted, PACKED, *((MEASURED,) if measured else ()), *here.clean_note),
        further=("ms_per_image", "ece"),
        shown=score.needs,
    )
