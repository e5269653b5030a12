"""One cell's records from several folders, as one list; what contradicts itself is told by name.

A key says all that a cell's numbers depend on, so records of one key must agree wherever they were made.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tta_bench.store import Record

# What may differ without being another result: time, place, wording.
OF_THE_MACHINE = {"seconds", "host", "device", "versions", "measured_bytes", "data_note", "reason"}
RELATIVE_TOLERANCE = 1e-6  # sums of floats are rounded differently on another processor; counts are not

Part = tuple[Path, list[Record]]  # a benchmark's folder, and the records there


@dataclass
class Union:
    """The records that count, and what is to be said of them."""

    records: list[Record] = field(default_factory=list)
    given: Counter[Path] = field(default_factory=Counter)  # records of domains, by folder
    notes: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)


def unite(key: str, parts: Sequence[Part]) -> Union:
    """All records of a cell: of two that say the same the first, and results rather than failures."""
    parts = [(folder, _newest(records)) for folder, records in parts if records]
    good = [folder for folder, records in parts if _has(records, "ok") and not _has(records, "failed")]
    union = Union()
    known: dict[tuple[Any, ...], tuple[Path, Record]] = {}
    for folder, records in parts:
        if good and _has(records, "failed"):
            kept = " and ".join(map(str, good))
            union.notes.append(f"{key}: failed in {folder}; the results in {kept} count.")
            records = [record for record in records if record.get("status") != "failed"]
        new = set()
        for record in records:
            place = _place(record)
            owner, twin = known.setdefault(place, (folder, record))
            if owner != folder:
                union.conflicts += _contradiction(key, (owner, twin), (folder, record))
            elif record["kind"] == "domain":
                new.add(place)
        if new:
            union.records += _contribution(records, new)
            union.given[folder] += len(new)
    union.conflicts += _disagreement(key, parts)
    if parts and not union.records:  # nobody has got beyond the start
        union.records = parts[0][1]
    return union


def _newest(records: Sequence[Record]) -> list[Record]:
    """All descriptions, and of a domain that was written twice the last record."""
    last = {_place(record): record for record in records}
    return [record for record in records if record["kind"] == "cell" or record is last[_place(record)]]


def _contribution(records: Sequence[Record], new: Container[tuple[Any, ...]]) -> Iterator[Record]:
    """The new records of a folder, each after what the machine that made it says of itself."""
    described: Record | None = None
    last = records[-1]
    for record in records:
        if record["kind"] == "cell":
            described = record
        elif _place(record) in new:
            if described is not None:
                yield described
            yield record
            described = None
    if last["kind"] == "cell":  # written at the end, once all was measured
        yield last


def _place(record: Record) -> tuple[Any, ...]:
    if record["kind"] == "cell" or record["status"] != "ok":
        return (record["kind"], record.get("status"))
    return (record["round"], record["corruption"], record["severity"])


def _has(records: Sequence[Record], status: str) -> bool:
    return any(record.get("status") == status for record in records)


def _contradiction(key: str, one: tuple[Path, Record], other: tuple[Path, Record]) -> list[str]:
    """A sentence if two records of one place differ in a number."""
    (here, a), (there, b) = one, other
    if a.get("status") == "failed":  # each failure is one of its own
        return []
    names = sorted((a.keys() | b.keys()) - OF_THE_MACHINE)
    differing = [name for name in names if not _alike(a.get(name), b.get(name))]
    if not differing:
        return []
    name = "correct" if "correct" in differing else differing[0]
    also = ", ".join(each for each in differing if each != name)
    where = f"{key}, round {a['round']}, {a['corruption']}-{a['severity']}" if "round" in a else key
    values = f"{name} is {a.get(name)} in {here} and {b.get(name)} in {there}"
    return [f"{where}: {values}" + (f"; {also} differ, too." if also else ".")]


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=RELATIVE_TOLERANCE, abs_tol=1e-9)
    return bool(a == b)


def _disagreement(key: str, parts: Sequence[Part]) -> list[str]:
    """A sentence if a cell could not run in one folder, and did in another."""
    refused = [folder for folder, records in parts if _has(records, "unsupported")]
    ran = [folder for folder, records in parts if _has(records, "ok")]
    return [f"{key}: unsupported in {refused[0]}, and has results in {ran[0]}."] if refused and ran else []
