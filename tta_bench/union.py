"""One cell's records from several folders, as one list; what contradicts itself is told by name.

A key says all that a cell's numbers depend on, so records of one key must agree wherever they were made.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tta_bench.store import Record, place_of, united

# What may differ without being another result: time, place, wording.
OF_THE_MACHINE = {"seconds", "environment", "reason"}
OF_THE_CELL = ("weights_sha256", "memory_bytes", "packed_bytes")  # what two descriptions must agree on
RELATIVE_TOLERANCE = 1e-6  # sums of floats are rounded differently on another processor; counts are not

Part = tuple[Path, list[Record]]  # a benchmark's folder, and the records there


@dataclass
class Union:
    """The records that count, the cell's description, and what is to be said of them."""

    records: list[Record] = field(default_factory=list)
    description: Record | None = None
    given: Counter[Path] = field(default_factory=Counter)  # records of domains, by folder
    notes: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)


def unite(key: str, parts: Sequence[Part], descriptions: Sequence[tuple[Path, Record]] = ()) -> Union:
    """All records of a cell: of two that say the same the first, and results rather than failures."""
    parts = [(folder, _newest(records)) for folder, records in parts if records]
    good = [folder for folder, records in parts if _has(records, "ok") and not _has(records, "failed")]
    union = Union()
    known: dict[tuple[Any, ...], tuple[Path, Record]] = {}
    for folder, records in parts:
        if good and _has(records, "failed"):
            kept = " and ".join(map(str, good))
            union.notes.append(f"{key}: failed in {folder}; the results in {kept} count.")
            records = [record for record in records if record["status"] != "failed"]
        for record in records:
            owner, twin = known.setdefault(_place(record), (folder, record))
            if owner != folder:
                union.conflicts += _contradiction(key, (owner, twin), (folder, record))
            else:
                union.records.append(record)
                union.given[folder] += 1
    union.conflicts += _disagreement(key, parts) + _other_code(key, parts, dict(descriptions))
    for folder, description in descriptions:
        union.conflicts += _other_description(key, descriptions[0], (folder, description))
        union.description = united(union.description, description)
    return union


def unite_ledgers(key: str, parts: Sequence[Part]) -> Union:
    """The longest ledger of a search; others must be what it was before."""
    longest = max((records for _, records in parts), key=len, default=[])
    owner = next((folder for folder, records in parts if records is longest), None)
    union = Union(list(longest))
    for folder, records in parts:
        if records != longest[: len(records)]:
            union.conflicts.append(f"{key}: the search went another way in {folder} than in {owner}.")
    return union


def _newest(records: Sequence[Record]) -> list[Record]:
    """The records, and of a domain that was written twice the last one."""
    return list({_place(record): record for record in records}.values())


def _other_code(key: str, parts: Sequence[Part], described: dict[Path, Record]) -> list[str]:
    """A sentence if different code has made a cell's records here and there."""
    found: dict[str, Path] = {}
    for folder, records in parts:
        for record in records:
            found.setdefault(record["code"], folder)
    if len(found) < 2:
        return []
    one, other, *_ = found.values()
    a, b = (described.get(folder, {}).get("code", {}) for folder in (one, other))
    plugins = ", ".join(name for name in sorted(a.keys() | b.keys()) if a.get(name) != b.get(name))
    return [f"{key}: the code of {plugins or 'its plugins'} differs between {one} and {other}."]


def _other_description(key: str, one: tuple[Path, Record], other: tuple[Path, Record]) -> list[str]:
    """A sentence if two descriptions differ in what the cell's key decides."""
    (here, a), (there, b) = one, other
    known = [name for name in OF_THE_CELL if a.get(name) is not None and b.get(name) is not None]
    differing = [name for name in known if a[name] != b[name]]
    return [f"{key}: {name} is {a[name]} in {here} and {b[name]} in {there}." for name in differing[:1]]


def _place(record: Record) -> tuple[Any, ...]:
    return place_of(record) if record["status"] == "ok" else (record["status"],)


def _has(records: Sequence[Record], status: str) -> bool:
    return any(record["status"] == status for record in records)


def _contradiction(key: str, one: tuple[Path, Record], other: tuple[Path, Record]) -> list[str]:
    """A sentence if two records of one place differ in a number."""
    (here, a), (there, b) = one, other
    if a["status"] == "failed":  # each failure is one of its own
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
