"""The tidy frame as typed records, and functions on them that every layout needs."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tta_bench.tables.table import TableError

if TYPE_CHECKING:
    from pandas import DataFrame

K = TypeVar("K")
V = TypeVar("V")


class Slot(NamedTuple):
    """A domain in a round and, in a layout with facets, the facet: what one record of a cell is about."""

    round: int
    corruption: str
    severity: int
    facet: str = ""


class GroupId(NamedTuple):
    """The key of a group of rows: one quantised model on one stream."""

    model: str
    quantizer: str
    bits: str
    stream: str = ""  # severity or batch size, if the benchmark has several


class RowId(NamedTuple):
    """The key of a row in its group; records of different rows are never averaged."""

    method: str
    variant: str
    reset: str
    version: str
    settings: str = ""  # that distinguish it from rows of the same method, if mixing is allowed


@dataclass(frozen=True, slots=True)
class TidyRecord:
    """One row of the tidy frame; it has no `slot` if only the status of its cell is known.

    A layout that puts several cells of one seed in one row (datasets, values of a parameter, protocols) gives
    each a `facet`; otherwise the facet is empty.
    """

    key: str
    model: str
    quantizer: str
    method: str
    bits: str
    variant: str
    reset: str
    version: str
    seed: int
    status: str
    reason: str
    slot: Slot | None
    n: int | None
    accuracy: float | None
    forwards: float | None
    backwards: float | None
    skipped_updates: int
    skipped_reasons: str  # number by reason, as JSON
    fingerprint: str | None
    backprop: bool | None
    memory_mib: float | None
    packed_mib: float | None
    measured_mib: float | None
    model_order: int
    quantizer_order: int
    method_order: int
    domain_order: int
    data: str
    model_plugin: str
    method_plugin: str
    params: str  # of the method, as JSON
    batch_size: int
    rounds: int
    other_code: bool = False  # computed by other code than the last run was planned with
    environment: str = ""  # versions and device, as text
    stream: str = ""
    identity: str = "{}"  # what all cells of its row share, except the method's parameters, as JSON
    data_note: str = ""
    code: str = ""
    correct_per_batch: Sequence[int] | None = None
    counters: str = "{}"  # of the method, at the end of the domain, as JSON
    facet: str = ""

    @property
    def settings(self) -> Mapping[str, Any]:
        """The method's parameters, with all defaults."""
        return _parsed(self.params)

    @property
    def counted(self) -> Mapping[str, int]:
        """The method's counters at the end of the domain."""
        return _parsed(self.counters)

    @property
    def group(self) -> GroupId:
        """The quantised model and stream of its cell."""
        return GroupId(self.model, self.quantizer, self.bits, self.stream)

    @property
    def facts(self) -> Mapping[str, Any]:
        """The identity of its cell without the seed: protocol, plugins, and the method's parameters."""
        method = {f"method.{name}": value for name, value in self.settings.items() if name != "seed"}
        return {"rounds": self.rounds, "batch_size": self.batch_size} | dict(_parsed(self.identity)) | method

    def shared(self, *without: str) -> tuple[object, ...]:
        """The facts that cells share if they differ only in the protocol, the seed and these parameters."""
        settings = ((k, str(v)) for k, v in sorted(self.settings.items()) if k not in (*without, "seed"))
        return (self.group, self.method_plugin, self.version, *settings)

    def expects(self, slot: Slot) -> bool:
        """Whether its cell has this slot, as far as is known."""
        domains = _parsed(self.identity).get("domains")
        known = domains is None or [slot.corruption, slot.severity] in domains
        return known and slot.round <= self.rounds and slot.facet == self.facet

    @property
    def stopped(self) -> bool:
        """Whether its cell is unsupported or failed, so that none of its results is valid."""
        return self.status in ("unsupported", "failed")

    @property
    def ok(self) -> bool:
        """Whether it has a result."""
        return self.status == "ok" and self.slot is not None

    def on(self, facet: str, **changes: Any) -> TidyRecord:
        """The record in a facet, with its slot in that facet."""
        slot = None if self.slot is None else self.slot._replace(facet=facet)
        return replace(self, facet=facet, slot=slot, **changes)


@lru_cache(maxsize=1024)
def _parsed(params: str) -> Mapping[str, Any]:
    return MappingProxyType(json.loads(params))


PLACE = ("round", "corruption", "severity")
FIELDS = (*(f.name for f in fields(TidyRecord) if f.default is MISSING and f.name != "slot"), *PLACE)
# Columns that a frame may lack.
OPTIONAL = [f.name for f in fields(TidyRecord) if f.default is not MISSING and f.name != "facet"]
ORDERS = ("model_order", "quantizer_order", "method_order", "domain_order")
INTEGERS = ("seed", "severity", "skipped_updates", "batch_size", "rounds", *ORDERS)
# Facts about a cell that a row with only its status may lack; other rows of the cell have them.
OF_THE_CELL = ("variant", "reset", "version", "backprop")
DEFAULTS: dict[str, Any] = {
    "variant": "",
    "reset": "never",
    "version": "",
    "backprop": None,
    "reason": "",
    "quantizer": "",
    "severity": 0,
    "skipped_updates": 0,
    "skipped_reasons": "{}",
    "domain_order": 0,
}


def read(frame: DataFrame) -> list[TidyRecord]:
    """The records of a tidy frame, with None for missing values."""
    if frame.empty:
        raise TableError("table", "there are no records", "Run the benchmark first: tta-bench run")
    if absent := [name for name in FIELDS if name not in frame.columns]:
        raise TableError(
            "table",
            f"the frame lacks the columns {', '.join(absent)}",
            "Make it with tta_bench.tables.frame.load",
        )
    names = [*FIELDS, *(name for name in OPTIONAL if name in frame.columns)]
    columns = (frame[name].astype(object).where(frame[name].notna(), None) for name in names)
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    known = {(r["key"], name): r[name] for r in rows for name in OF_THE_CELL if r[name] is not None}
    return [_record(row, known) for row in rows]


def _record(row: dict[str, Any], known: dict[tuple[str, str], Any]) -> TidyRecord:
    """One record; missing values come from other records of its cell, or from the defaults."""
    for name, value in DEFAULTS.items():
        if row[name] is None:
            row[name] = known.get((row["key"], name), value)
    for name in INTEGERS:  # a column with gaps holds floats
        row[name] = int(row[name])
    row["n"] = None if row["n"] is None else int(row["n"])
    row["version"] = str(row["version"])
    row = {name: value for name, value in row.items() if value is not None or name not in OPTIONAL}
    round_, corruption, severity = (row.pop(name) for name in PLACE)
    given = round_ is not None and corruption is not None
    return TidyRecord(slot=Slot(int(round_), corruption, severity) if given else None, **row)


def slots(records: Iterable[TidyRecord]) -> list[Slot]:
    """The slots of all cells, run or pending, in the order of the YAML."""
    order: dict[Slot, int] = {}
    for record in records:
        if (slot := record.slot) is not None:
            order[slot] = min(order.get(slot, record.domain_order), record.domain_order)
    return sorted(order, key=lambda slot: (slot.round, order[slot], slot))


def gathered(pairs: Iterable[tuple[K, V]]) -> dict[K, set[V]]:
    """The different values of each key, keys by first use."""
    found: dict[K, set[V]] = defaultdict(set)
    for key, value in pairs:
        found[key].add(value)
    return found


def bits_order(bits: str) -> tuple[int, ...]:
    """Sorts FP32 before W8A8 before W4A4."""
    return tuple(-int(digits) for digits in re.findall(r"\d+", bits))


def stream_order(stream: str) -> tuple[int, ...]:
    """Sorts severity 3 before severity 5, and batch size 8 before batch size 64."""
    return tuple(int(digits) for digits in re.findall(r"\d+", stream))
