"""Layout `sweep`: one column per value of a parameter, with accuracy and memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from tta_bench.tables.assembly.layout_spec import ColumnSpec, LayoutInput, TableSpec, memory_mib
from tta_bench.tables.assembly.records import TidyRecord, gathered
from tta_bench.tables.reference import Citation
from tta_bench.tables.table import Column

UNSWEPT = ("seed", "variant")  # seeds are averaged; variants have their own rows
FIXED = ""  # facet of the methods without the parameter


def lay_out(given: LayoutInput) -> TableSpec:
    """The paper's tables on N, c, the distribution and the start of α."""
    name = _parameter(given)
    faceted = _by_value(given.records, name)
    values = list(dict.fromkeys(r.facet for r in sorted(faceted, key=lambda r: r.method_order)))
    values.sort(key=lambda value: value != FIXED)  # stable: baselines first, then in the order of the YAML
    round_ = given.round

    def score(value: str) -> ColumnSpec:
        key, title = (f"{name}={value}", value) if value else ("fixed", "fixed")
        return given.mean_accuracy(key, title, round_, value, group=name)

    memory, notes = _memory(faceted, name, [value for value in values if value != FIXED])
    fixed = ("Fixed: methods without the parameter.",) if FIXED in values else ()
    return TableSpec(
        caption=f"Mean accuracy (%) by {name} at round {round_}{given.severity}.",
        columns=(*map(score, values), *memory),
        notes=(*fixed, *notes, *given.clean_note),
        records=faceted,
    )


def _parameter(given: LayoutInput) -> str:
    """The requested parameter; by default the only one with several values."""
    varying, asked = varied(given.records), given.options.parameter
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
    raise given.error(problem, f"{remedy}; varying: {listed}")


def varied(records: Iterable[TidyRecord]) -> list[str]:
    """The parameters in which cells of one method on one model differ."""
    values = gathered(
        ((name, record.group, record.method_plugin), str(value))
        for record in records
        for name, value in record.settings.items()
    )
    return sorted({name for (name, *_), found in values.items() if len(found) > 1 and name not in UNSWEPT})


def _by_value(records: Sequence[TidyRecord], name: str) -> list[TidyRecord]:
    """Records with the value as facet; cells that differ in nothing else get one method name."""
    labels = gathered((_others(record, name), _bare(record, name)) for record in records)
    found = []
    for record in records:
        value = record.settings.get(name)
        names = labels[_others(record, name)]
        method = next(iter(names)) if len(names) == 1 else record.method_plugin
        found.append(record.on(FIXED if name not in record.settings else _text(value), method=method))
    return found


def _others(record: TidyRecord, name: str) -> tuple[object, ...]:
    """The facts that the cells of a row share."""
    return (record.reset, *record.shared(name))


def _bare(record: TidyRecord, name: str) -> str:
    """A method's name without the value that expanding the list added to it."""
    mark = re.escape(f"{name}={record.settings.get(name)}")
    without = re.sub(rf"(?<=[( ]){mark}(, )?", "", record.method)
    return re.sub(r"( \(\)|, \))$", lambda m: "" if m[0] == " ()" else ")", without)


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _memory(
    records: Sequence[TidyRecord], name: str, values: Sequence[str]
) -> tuple[tuple[ColumnSpec, ...], list[str]]:
    """Columns of the memory beyond that of the smallest value, if the parameter changes memory."""
    leanest: dict[tuple[object, ...], float] = {}
    for record in records:
        if record.facet != FIXED and record.memory_mib is not None:
            place = _others(record, name)
            leanest[place] = min(leanest.get(place, record.memory_mib), record.memory_mib)

    def extra(found: Sequence[TidyRecord]) -> float | None:
        total = memory_mib(found)
        return None if total is None else total - leanest[_others(found[0], name)]

    differ = any(
        r.memory_mib is not None and r.memory_mib > leanest[_others(r, name)] for r in records if r.facet
    )
    if not differ:
        return (), []
    specs = tuple(
        ColumnSpec(
            Column(f"memory {name}={value}", value, "memory", "extra MiB"),
            extra,
            fact=True,
            facets=(value,),
            citation=Citation("bank_mib") if name == "bank_size" else None,
        )
        for value in values
    )
    base = ", ".join(f"{mib:,.2f}" for mib in sorted(set(leanest.values())))
    return specs, [f"Extra MiB: memory beyond that of the leanest value, which takes {base} MiB."]
