"""Layout `sweep`: one column per value of a parameter, with accuracy and memory."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from pandas import DataFrame, Series

from tta_bench.tables.layout import ROW, ColumnSpec, LayoutInput, TableSpec
from tta_bench.tables.references.reference import Citation
from tta_bench.tables.table import Column

UNSWEPT = ("seed", "variant")  # seeds are averaged; variants have their own rows
FIXED = ""  # facet of the methods without the parameter
METHOD = ["model", "quantizer", "bits", "stream", "method_plugin"]


def lay_out(given: LayoutInput) -> TableSpec:
    """The paper's tables on N, c, the distribution and the start of α."""
    name = _parameter(given)
    swept = _by_value(given, name)
    cells = swept.cells
    values = list(cells.sort_values("method_order", kind="stable")["facet"].unique())
    values.sort(key=lambda value: value != FIXED)  # stable: baselines first, then in the order of the YAML

    def score(value: str) -> ColumnSpec:
        key, title = (f"{name}={value}", value) if value else ("fixed", "fixed")
        return given.mean_accuracy(key, title, given.round, value, group=name)

    memory, notes = _memory(cells, name, [value for value in values if value != FIXED])
    fixed = ("Fixed: methods without the parameter.",) if FIXED in values else ()
    return TableSpec(
        caption=f"Mean accuracy (%) by {name} at round {given.round}{given.severity}.",
        columns=(*map(score, values), *memory),
        notes=(*fixed, *notes, *given.clean_note),
        given=swept,
    )


def _parameter(given: LayoutInput) -> str:
    """The requested parameter; by default the only one with several values."""
    varying, asked = varied(given.cells), given.options.parameter
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


def varied(cells: DataFrame) -> list[str]:
    """The parameters in which cells of one method on one model differ."""
    items: Any = [list(settings.items()) for settings in cells["settings"]]
    long = cells[METHOD].assign(value=items).explode("value")
    long = long[long["value"].notna()]
    long = long.assign(name=long["value"].str[0], value=long["value"].str[1].map(str))
    counts = long.groupby(["name", *METHOD])["value"].nunique().groupby("name").max()
    return sorted(set(counts.index[counts > 1]) - set(UNSWEPT))


def _by_value(given: LayoutInput, name: str) -> LayoutInput:
    """The input with the value as facet; cells that differ in nothing else get one method name."""
    cells = given.cells
    values = Series(
        [_text(each.get(name)) if name in each else FIXED for each in cells["settings"]], cells.index
    )
    bare = Series(
        [_bare(*each, name) for each in zip(cells["method"], cells["settings"], strict=True)], cells.index
    )
    same = [*(cells[column] for column in (*METHOD, "version", "reset")), _others(cells, name)]
    one = bare.groupby(same).transform("nunique") == 1
    return given.faceted(values, method=bare.where(one, cells["method_plugin"]))


def _others(cells: DataFrame, name: str) -> Series:
    """The parameters that the cells of a row share, as text."""
    return cells["settings"].map(
        lambda settings: json.dumps(
            sorted((k, str(v)) for k, v in settings.items() if k not in (name, "seed"))
        )
    )


def _bare(method: str, settings: dict[str, Any], name: str) -> str:
    """A method's name without the value that expanding the list added to it."""
    mark = re.escape(f"{name}={settings.get(name)}")
    without = re.sub(rf"(?<=[( ]){mark}(, )?", "", method)
    return re.sub(r"( \(\)|, \))$", lambda m: "" if m[0] == " ()" else ")", without)


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _memory(cells: DataFrame, name: str, values: Sequence[str]) -> tuple[list[ColumnSpec], list[str]]:
    """Columns of the memory beyond that of the smallest value, if the parameter changes memory."""
    swept = cells[cells["facet"] != FIXED]
    same = [*(swept[column] for column in (*METHOD, "version", "reset")), _others(swept, name)]
    leanest = swept["memory_mib"].groupby(same).transform("min")
    extra = swept["memory_mib"] - leanest
    if not (extra > 0).any():
        return [], []

    def measure(_: DataFrame, own: DataFrame) -> Series:
        return own.assign(extra=extra).groupby(ROW)["extra"].first()

    columns = [
        ColumnSpec(
            Column(f"memory {name}={value}", value, "memory", "extra MiB"),
            measure,
            fact=True,
            facets=(value,),
            citation=Citation("bank_mib") if name == "bank_size" else None,
        )
        for value in values
    ]
    base = ", ".join(f"{mib:,.2f}" for mib in sorted(leanest.dropna().unique()))
    return columns, [f"Extra MiB: memory beyond that of the leanest value, which takes {base} MiB."]
