"""Layout `reset-vs-continual`: each method with a reset after every domain, and without resets."""

from __future__ import annotations

from tta_bench.tables.layout import LayoutInput, TableSpec, difference

RESET, CONTINUAL = "domain", "never"
NOTE = "Reset: the model is restored after each domain. Lost: points below that, at the last round."
SAME = ["model", "quantizer", "bits", "stream", "method_plugin", "version", "unseeded"]


def lay_out(given: LayoutInput) -> TableSpec:
    """Accuracy with and without resets; cells that differ in nothing else share a row."""
    cells = given.cells
    if set(cells["reset"]) != {RESET, CONTINUAL}:
        raise given.error(
            "it compares two protocols, and there is only one",
            "Give a method twice, once with `reset: domain`",
        )
    # Both protocols of a method get the name of the continual one.
    names = cells["method"].where(cells["reset"] == CONTINUAL)
    same = [cells[name] for name in SAME]
    names = names.groupby(same).transform("first").fillna(cells.groupby(SAME)["method"].transform("first"))
    paired, last, both = (
        given.faceted(cells["reset"], method=names, reset=""),
        given.round,
        (RESET, CONTINUAL),
    )
    return TableSpec(
        caption=f"Mean accuracy (%) with and without resets{given.severity}.",
        columns=(
            given.mean_accuracy("reset", "Reset", last, RESET),
            *(given.mean_accuracy(f"round_{n}", f"R{n}", n, CONTINUAL) for n in sorted({1, last})),
            difference("lost", "Lost", "facet", both, given.average(last), facets=both),
        ),
        notes=(NOTE, *given.clean_note),
        given=paired,
    )
