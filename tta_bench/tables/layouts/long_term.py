"""Layout `long-term`: one column per round of continual adaptation, and the average."""

from __future__ import annotations

from tta_bench.tables.layout import LayoutInput, TableSpec, passes, rank_of


def lay_out(given: LayoutInput) -> TableSpec:
    """The paper's long-term tables."""
    if given.options.round is not None:
        raise given.error("it shows every round", "Leave out the option round")
    return TableSpec(
        caption=f"Mean accuracy (%) at each round of adaptation{given.severity}.",
        columns=(
            passes("forwards", "#FP", given.averaged),
            *(given.mean_accuracy(f"round_{n}", str(n), n) for n in given.rounds),
            given.mean_accuracy("average", "Average", "all"),
            rank_of("average"),
        ),
        notes=("#FP: forward passes per image, counted.", *given.clean_note),
        shown=given.averaged,
    )
