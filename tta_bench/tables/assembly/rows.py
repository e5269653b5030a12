"""The rows of a table: which cells belong to which row, in the order of the YAML."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from pandas import DataFrame

from tta_bench.tables.assembly.checks import (
    GROUP,
    OWN,
    listed,
    mixed_versions,
    named_facts,
    row_differences,
)
from tta_bench.tables.layout import LayoutInput, RowId
from tta_bench.tables.table import TableError


class GroupId(NamedTuple):
    """The key of a group of rows: one quantised model on one stream."""

    model: str
    quantizer: str
    bits: str
    stream: str = ""  # severity or batch size, if the benchmark has several


class RowPlace(NamedTuple):
    """The key of a row in its table."""

    group: GroupId
    id: RowId


def with_rows(given: LayoutInput) -> tuple[LayoutInput, list[RowPlace]]:
    """The input with the number of its row in each cell, and the rows."""
    cells = given.cells
    versions, differing = mixed_versions(cells), row_differences(cells)
    keys = []
    places: Any = zip(*(cells[name] for name in (*GROUP, *OWN, "version")), strict=True)
    for number, place in enumerate(places):
        # Each version and each setting of a method has its own row: they are never averaged.
        own, version, names = place[len(GROUP) : -1], place[-1], differing.get(place[:-1])
        settings = named_facts(dict(cells.loc[number]), names) if names else ""
        row = RowId(own[0], own[1], own[2], version if own[0] in versions else "", settings)
        keys.append(RowPlace(GroupId(*place[: len(GROUP)]), row))
    rows = _ordered(cells, keys)
    position = {key: i for i, key in enumerate(rows)}
    return replace(given, cells=cells.assign(row=[position[key] for key in keys])), rows


def _ordered(cells: DataFrame, keys: list[RowPlace]) -> list[RowPlace]:
    """Rows in the order of the YAML, then by name."""
    orders = cells[["model_order", "quantizer_order", "method_order"]].to_numpy(int)
    streams = _stream_places(cells["stream"].unique())
    models: dict[GroupId, tuple[int, int]] = {}
    methods: dict[RowPlace, int] = {}
    for key, (model, quantizer, method) in zip(keys, orders.tolist(), strict=True):
        models[key.group] = min(models.get(key.group, (model, quantizer)), (model, quantizer))
        methods[key] = min(methods.get(key, method), method)

    def place(key: RowPlace) -> tuple:
        group = key.group
        bits = tuple(-number for number in _numbers(group.bits))
        return models[group], group.model, bits, streams[group.stream], group, methods[key], key.id

    return sorted(methods, key=place)


def _stream_places(names: Iterable[str]) -> dict[str, tuple[int, tuple[int, ...]]]:
    """The place of each stream: in the order of the YAML, but severities and batch sizes by number."""
    words: dict[str, int] = {}
    return {name: (words.setdefault(re.sub(r"\d+", "", name), len(words)), _numbers(name)) for name in names}


def _numbers(text: str) -> tuple[int, ...]:
    """Sorts severity 3 before severity 5 and, negated, FP32 before W8A8 before W4A4."""
    return tuple(map(int, re.findall(r"\d+", text)))


def refuse_doubles(given: LayoutInput, rows: list[RowPlace]) -> None:
    """Raise an error if a row has two cells of one seed, as their mean would look like a mean over seeds."""
    cells, records = given.cells, given.records
    groups: Any = cells.groupby(["row", "facet", "seed"])["key"]
    for (row, _, seed), found in groups:
        if len(found) > 1:
            _double(given.layout, rows[row], f"{len(found)} cells of seed {seed}: {listed(found)}")
    ok = records[(records["status"] == "ok").to_numpy() & (records["slot"] >= 0).to_numpy()]
    twice = ok[ok.duplicated(["cell", "slot"], keep=False)]
    groups = twice.groupby(["cell", "slot"])
    for (cell, slot), found in groups:
        key, where = cells["key"][cell], given.slots.loc[slot]
        place = f"round {where['round']}, {where['corruption']}-{where['severity']}"
        _double(given.layout, rows[cells["row"][cell]], f"{len(found)} records of cell {key} at {place}")


def _double(layout: str, row: RowPlace, problem: str) -> None:
    raise TableError(
        f"table {layout}: {' '.join(part for part in (*row.group, *row.id) if part)}",
        problem,
        "Give each its own method name or variant, or select one of them",
    )
