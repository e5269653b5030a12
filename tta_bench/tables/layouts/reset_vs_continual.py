"""Layout `reset-vs-continual`: each method with a reset after every domain, and without resets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from tta_bench.tables.assembly.layout_spec import LayoutInput, TableSpec, difference
from tta_bench.tables.assembly.records import Slot, TidyRecord

RESET, CONTINUAL = "domain", "never"
NOTE = "Reset: the model is restored after each domain. Lost: points below that, at the last round."


def lay_out(given: LayoutInput) -> TableSpec:
    """Accuracy with and without resets; cells that differ in nothing else share a row."""
    if {record.reset for record in given.records} != {RESET, CONTINUAL}:
        raise given.error(
            "it compares two protocols, and there is only one",
            "Give a method twice, once with `reset: domain`",
        )
    last = given.round

    def final(slot: Slot) -> bool:
        return slot.round == last and given.averaged(slot)

    both = (RESET, CONTINUAL)
    return TableSpec(
        caption=f"Mean accuracy (%) with and without resets{given.severity}.",
        columns=(
            given.mean_accuracy("reset", "Reset", last, RESET),
            *(given.mean_accuracy(f"round_{n}", f"R{n}", n, CONTINUAL) for n in sorted({1, last})),
            difference("lost", "Lost", lambda record: record.facet, both, final, facets=both),
        ),
        notes=(NOTE, *given.clean_note),
        records=_paired(given.records),
    )


def _paired(records: Sequence[TidyRecord]) -> list[TidyRecord]:
    """Records with the protocol as facet; both protocols of a method get the name of the continual one."""
    names: dict[tuple[object, ...], dict[str, str]] = defaultdict(dict)
    for record in records:
        names[record.shared()].setdefault(record.reset, record.method)
    found = []
    for record in records:
        known = names[record.shared()]
        name = known.get(CONTINUAL) or known[RESET]
        found.append(record.on(record.reset, method=name, reset=""))
    return found
