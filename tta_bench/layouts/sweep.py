"""Values of one parameter as columns: what a method makes of them, and what they cost in memory."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from tta_bench.layouts.plan import (
    Cite,
    Options,
    Plan,
    Spec,
    accuracy,
    averaged_at,
    chosen_round,
    clean_note,
    fact,
    severity_text,
)
from tta_bench.layouts.records import Record, slots
from tta_bench.layouts.types import Column, TableError

UNSWEPT = ("seed", "variant")  # seeds are averaged; variants are rows anyhow
FIXED = ""  # facet of the methods that do not have the parameter


def lay_out(layout: str, records: Sequence[Record], options: Options) -> Plan:
    """The plan of the paper's tables on N, c, the distribution and the start of α."""
    name = _parameter(layout, records, options.parameter)
    faceted = _by_value(records, name)
    values = list(dict.fromkeys(r.facet for r in sorted(faceted, key=lambda r: r.method_order)))
    values.sort(key=lambda value: value != FIXED)  # stable: baselines first, else as in the YAML
    round_ = chosen_round(layout, records, options.round)
    found = slots(records)
    counts = averaged_at(found, round_)

    def score(value: str) -> Spec:
        return Spec(
            Column(f"{name}={value}" if value else "fixed", value or "fixed", "accuracy", name),
            accuracy,
            lambda slot: slot.facet == value and counts(slot),
            facets=(value,),
            cites=Cite("accuracy", "average", round_),
        )

    memory, notes = _memory(faceted, name, [value for value in values if value != FIXED])
    fixed = ("Fixed: methods without the parameter.",) if FIXED in values else ()
    return Plan(
        caption=f"Mean accuracy (%) by {name} at round {round_}{severity_text(records)}.",
        specs=(*map(score, values), *memory),
        notes=(*fixed, *notes, *clean_note(found)),
        records=faceted,
    )


def _parameter(layout: str, records: Sequence[Record], asked: str | None) -> str:
    """The parameter asked for, or else the only one that takes several values."""
    varying = varied(records)
    if asked is not None and asked in varying:
        return asked
    listed = ", ".join(varying) or "none"
    if asked is not None:
        problem = f'"{asked}" does not take several values'
    elif len(varying) == 1:
        return varying[0]
    elif varying:
        problem = "several parameters take several values"
    else:
        problem = "no parameter takes several values"
    remedy = "Choose one with --parameter" if varying else "Give a list, such as {use: zoa, c: [0.01, 0.02]}"
    raise TableError(f"table {layout}", problem, f"{remedy}; varying: {listed}")


def varied(records: Iterable[Record]) -> list[str]:
    """Parameters in which cells of one method on one model differ."""
    values: dict[tuple[object, ...], set[str]] = defaultdict(set)
    for record in records:
        for name, value in record.settings.items():
            values[name, record.group, record.method_plugin].add(str(value))
    names = dict.fromkeys(str(place[0]) for place, found in values.items() if len(found) > 1)
    return sorted(name for name in names if name not in UNSWEPT)


def _by_value(records: Sequence[Record], name: str) -> list[Record]:
    """Records by value, cells that differ in nothing else under one method name."""
    labels: dict[tuple[object, ...], set[str]] = defaultdict(set)
    for record in records:
        labels[_others(record, name)].add(_bare(record, name))
    found = []
    for record in records:
        value = record.settings.get(name)
        names = labels[_others(record, name)]
        method = next(iter(names)) if len(names) == 1 else record.method_plugin
        found.append(record.on(FIXED if name not in record.settings else _text(value), method=method))
    return found


def _others(record: Record, name: str) -> tuple[object, ...]:
    """What the cells of one row have in common."""
    settings = ((k, str(v)) for k, v in sorted(record.settings.items()) if k not in (name, "seed"))
    return (record.group, record.method_plugin, record.reset, record.version, *settings)


def _bare(record: Record, name: str) -> str:
    """A method's name without the value that the sweep has added to it."""
    mark = re.escape(f"{name}={record.settings.get(name)}")
    without = re.sub(rf"(?<=[( ]){mark}(, )?", "", record.method)
    return re.sub(r"( \(\)|, \))$", lambda m: "" if m[0] == " ()" else ")", without)


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _memory(
    records: Sequence[Record], name: str, values: Sequence[str]
) -> tuple[tuple[Spec, ...], list[str]]:
    """Memory beyond that of the leanest value, where the parameter has a say in it."""
    leanest: dict[tuple[object, ...], float] = {}
    for record in records:
        if record.facet != FIXED and record.memory_mib is not None:
            place = _others(record, name)
            leanest[place] = min(leanest.get(place, record.memory_mib), record.memory_mib)

    def extra(found: Sequence[Record]) -> float | None:
        total = fact("memory_mib")(found)
        return None if total is None else total - leanest[_others(found[0], name)]

    differ = any(
        r.memory_mib is not None and r.memory_mib > leanest[_others(r, name)] for r in records if r.facet
    )
    if not differ:
        return (), []
    specs = tuple(
        Spec(
            Column(f"memory {name}={value}", value, "memory", "extra MiB"),
            extra,
            fact=True,
            facets=(value,),
            cites=Cite("bank_mib") if name == "bank_size" else None,
        )
        for value in values
    )
    base = ", ".join(f"{mib:,.2f}" for mib in sorted(set(leanest.values())))
    return specs, [f"Extra MiB: memory beyond that of the leanest value, which takes {base} MiB."]
