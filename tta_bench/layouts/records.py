"""The tidy frame as typed records, and the little that every layout asks of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from tta_bench.layouts.types import TableError

if TYPE_CHECKING:
    from pandas import DataFrame


class Slot(NamedTuple):
    """Where a record belongs: its place in the stream and, in a faceted layout, its facet."""

    round: int
    corruption: str
    severity: int
    facet: str = ""


class GroupId(NamedTuple):
    """What makes a group of rows: one quantised model on one stream."""

    model: str
    quantizer: str
    bits: str
    stream: str = ""  # severity or batch size, where a benchmark has several


class RowId(NamedTuple):
    """What makes a row within its group; rows that differ in any of these are never averaged."""

    method: str
    variant: str
    reset: str
    version: str
    settings: str = ""  # in what it differs from others of its name, where these are mixed on request


@dataclass(frozen=True, slots=True)
class Record:
    """One row of the frame; it has no `slot` where only the status of its cell is known.

    A layout that puts several cells in one row (datasets, values of a parameter, protocols) gives each
    of them a `facet`; elsewhere it is empty.
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
    skipped_reasons: str  # how many of them for which reason, as JSON
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
    other_code: bool = False  # than the plugins had when the last run was planned
    environment: str = ""  # versions and device, in words
    stream: str = ""
    identity: str = "{}"  # what it shares with all cells of its row but the method's parameters, as JSON
    data_note: str = ""
    code: str = ""
    correct_per_batch: Sequence[int] | None = None
    counters: str = "{}"  # the method's own, at the domain's end, as JSON
    facet: str = ""

    @property
    def settings(self) -> Mapping[str, Any]:
        """The method's parameters, all defaults filled in."""
        return _parsed(self.params)

    @property
    def counted(self) -> Mapping[str, int]:
        """The method's own counts at the end of the domain."""
        return _parsed(self.counters)

    @property
    def group(self) -> GroupId:
        """The quantised model it belongs to."""
        return GroupId(self.model, self.quantizer, self.bits, self.stream)

    @property
    def facts(self) -> Mapping[str, Any]:
        """Its cell's identity without the seed: the protocol, the plugins, and the method's parameters."""
        method = {f"method.{name}": value for name, value in self.settings.items() if name != "seed"}
        return {"rounds": self.rounds, "batch_size": self.batch_size} | dict(_parsed(self.identity)) | method

    def expects(self, slot: Slot) -> bool:
        """Whether its cell is to have a result there, as far as is known."""
        domains = _parsed(self.identity).get("domains")
        known = domains is None or [slot.corruption, slot.severity] in domains
        return known and slot.round <= self.rounds and slot.facet == self.facet

    @property
    def stopped(self) -> bool:
        """Whether it says that its cell has no valid results, whatever its other records hold."""
        return self.status in ("unsupported", "failed")

    @property
    def ok(self) -> bool:
        """Whether it carries a result."""
        return self.status == "ok" and self.slot is not None

    def on(self, facet: str, **changes: Any) -> Record:
        """The record under a facet, its slot too."""
        slot = None if self.slot is None else self.slot._replace(facet=facet)
        return replace(self, facet=facet, slot=slot, **changes)


@lru_cache(maxsize=1024)
def _parsed(params: str) -> Mapping[str, Any]:
    return MappingProxyType(json.loads(params))


PLACE = ("round", "corruption", "severity")
FIELDS = (*(f.name for f in fields(Record) if f.default is MISSING and f.name != "slot"), *PLACE)
# A frame made by hand need not have these.
OPTIONAL = (
    "other_code",
    "environment",
    "stream",
    "identity",
    "data_note",
    "code",
    "correct_per_batch",
    "counters",
)
ORDERS = ("model_order", "quantizer_order", "method_order", "domain_order")
INTEGERS = ("seed", "severity", "skipped_updates", "batch_size", "rounds", *ORDERS)
# A status row of a cell may leave these out; its other rows know them.
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


def read(frame: DataFrame) -> list[Record]:
    """The records of a tidy frame, missing values as None."""
    if frame.empty:
        raise TableError("table", "there are no records", "Run the benchmark first: tta-bench run")
    if absent := [name for name in FIELDS if name not in frame.columns]:
        raise TableError(
            "table",
            f"the frame lacks the columns {', '.join(absent)}",
            "Make it with tta_bench.frame.load",
        )
    names = [*FIELDS, *(name for name in OPTIONAL if name in frame.columns)]
    columns = (frame[name].astype(object).where(frame[name].notna(), None) for name in names)
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    known = {(r["key"], name): r[name] for r in rows for name in OF_THE_CELL if r[name] is not None}
    return [_record(row, known) for row in rows]


def _record(row: dict[str, Any], known: dict[tuple[str, str], Any]) -> Record:
    """One record, with what its cell or the defaults know filled in."""
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
    return Record(slot=Slot(int(round_), corruption, severity) if given else None, **row)


def slots(records: Iterable[Record]) -> list[Slot]:
    """All places in the stream that any cell has filled or is to fill, in the order of the YAML."""
    order: dict[Slot, int] = {}
    for record in records:
        if (slot := record.slot) is not None:
            order[slot] = min(order.get(slot, record.domain_order), record.domain_order)
    return sorted(order, key=lambda slot: (slot.round, order[slot], slot))


def bits_order(bits: str) -> tuple[int, ...]:
    """Sorts FP32 before W8A8 before W4A4."""
    return tuple(-int(digits) for digits in re.findall(r"\d+", bits))


def stream_order(stream: str) -> tuple[int, ...]:
    """Sorts severity 3 before severity 5, and batch size 8 before batch size 64."""
    return tuple(int(digits) for digits in re.findall(r"\d+", stream))
