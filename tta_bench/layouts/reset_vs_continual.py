"""A method that forgets at every domain beside itself when it never does: what long streams cost it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from tta_bench.layouts.plan import (
    Cite,
    Options,
    Plan,
    Spec,
    accuracy,
    averaged,
    chosen_round,
    clean_note,
    severity_text,
)
from tta_bench.layouts.records import Record, Slot, slots
from tta_bench.layouts.types import Column, TableError

RESET, CONTINUAL = "domain", "never"
NOTE = "Reset: the model is restored after each domain. Lost: points below that, at the last round."


def lay_out(layout: str, records: Sequence[Record], options: Options) -> Plan:
    """Accuracy with and without resets; cells that differ in nothing else share a row."""
    if {record.reset for record in records} != {RESET, CONTINUAL}:
        raise TableError(
            f"table {layout}",
            "it compares two protocols, and there is only one",
            "Give a method twice, once with `reset: domain`",
        )
    last = chosen_round(layout, records, options.round)
    counts = averaged(slots(records))

    def column(key: str, name: str, protocol: str, round_: int) -> Spec:
        return Spec(
            Column(key, name, "accuracy"),
            accuracy,
            lambda slot: slot.facet == protocol and slot.round == round_ and counts(slot),
            facets=(protocol,),
            cites=Cite("accuracy", "average", round_),
        )

    def final(slot: Slot) -> bool:
        return slot.round == last and counts(slot)

    lost = Spec(Column("lost", "Lost", "count"), _lost, final, facets=(RESET, CONTINUAL))
    return Plan(
        caption=f"Mean accuracy (%) with and without resets{severity_text(records)}.",
        specs=(
            column("reset", "Reset", RESET, last),
            column("round_1", "R1", CONTINUAL, 1),
            *((column(f"round_{last}", f"R{last}", CONTINUAL, last),) if last > 1 else ()),
            lost,
        ),
        notes=(NOTE, *clean_note(slots(records))),
        records=_paired(records),
    )


def _lost(records: Sequence[Record]) -> float | None:
    """Points by which never resetting falls short."""
    reset, continual = (accuracy([r for r in records if r.facet == facet]) for facet in (RESET, CONTINUAL))
    return None if reset is None or continual is None else reset - continual


def _paired(records: Sequence[Record]) -> list[Record]:
    """Records by protocol, both kinds of a method under the name of the one that goes on."""
    names: dict[tuple[object, ...], dict[str, str]] = defaultdict(dict)
    for record in records:
        names[_method(record)].setdefault(record.reset, record.method)
    found = []
    for record in records:
        known = names[_method(record)]
        name = known.get(CONTINUAL) or known[RESET]
        found.append(record.on(record.reset, method=name, reset=""))
    return found


def _method(record: Record) -> tuple[object, ...]:
    """All that two cells of one row have in common."""
    settings = tuple((k, str(v)) for k, v in sorted(record.settings.items()) if k != "seed")
    return (record.group, record.method_plugin, record.version, settings)
