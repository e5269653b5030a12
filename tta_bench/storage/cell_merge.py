"""The records of one cell from several folders as one list; contradictions are named.

A cell's key covers everything its numbers depend on, so records with one key must agree, whichever machine
computed them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tta_bench.storage.record import Record, round_and_domain
from tta_bench.storage.store import merged_descriptions

# Fields that may differ between machines while the result is the same.
MACHINE_FIELDS = {"seconds", "environment", "reason"}
CELL_FIELDS = ("weights_sha256", "memory_bytes", "packed_bytes")  # equal in all descriptions of a cell
LATER_FIELDS = {"class_accuracy"}  # which records of earlier versions lack
RELATIVE_TOLERANCE = 1e-6  # another processor rounds sums of floats differently; counts must be equal

FolderRecords = tuple[Path, list[Record]]  # a benchmark's folder, and the records of the cell in it


@dataclass
class MergedCell:
    """The records that count, the cell's description, and what the user must know about them."""

    records: list[Record] = field(default_factory=list)
    description: Record | None = None
    given: Counter[str] = field(default_factory=Counter)  # number of records taken, by folder
    notes: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)


def merge_cell(
    key: str, parts: Sequence[FolderRecords], descriptions: Sequence[tuple[Path, Record]] = ()
) -> MergedCell:
    """All records of a cell: the first of two equal ones, and results rather than failures."""
    # The last record of each round and domain counts.
    parts = [(folder, list({_slot(r): r for r in records}.values())) for folder, records in parts if records]
    good = [folder for folder, records in parts if _has(records, "ok") and not _has(records, "failed")]
    merged = MergedCell()
    known: dict[tuple[Any, ...], tuple[Path, Record]] = {}
    for folder, records in parts:
        if good and _has(records, "failed"):
            kept = " and ".join(map(str, good))
            merged.notes.append(f"{key}: failed in {folder}; the results in {kept} count.")
            records = [record for record in records if record["status"] != "failed"]
        for record in records:
            owner, twin = known.setdefault(_slot(record), (folder, record))
            if owner != folder:
                merged.conflicts += _contradiction(key, (owner, twin), (folder, record))
            else:
                merged.records.append(record)
                merged.given[str(folder)] += 1
    merged.conflicts += _disagreement(key, parts) + _other_code(key, parts, dict(descriptions))
    for folder, description in descriptions:
        merged.conflicts += _other_description(key, descriptions[0], (folder, description))
        merged.description = merged_descriptions(merged.description, description)
    return merged


def merge_ledgers(key: str, parts: Sequence[FolderRecords]) -> MergedCell:
    """The longest ledger of a search; all others must be beginnings of it."""
    longest = max((records for _, records in parts), key=len, default=[])
    owner = next((folder for folder, records in parts if records is longest), None)
    merged = MergedCell(list(longest))
    for folder, records in parts:
        if records != longest[: len(records)]:
            merged.conflicts.append(f"{key}: the search took other steps in {folder} than in {owner}.")
    return merged


def _other_code(key: str, parts: Sequence[FolderRecords], described: dict[Path, Record]) -> list[str]:
    """A sentence if the folders' records were computed by different code."""
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
    """A sentence if two descriptions of a cell contradict each other."""
    (here, a), (there, b) = one, other
    known = [name for name in CELL_FIELDS if a.get(name) is not None and b.get(name) is not None]
    differing = [name for name in known if a[name] != b[name]]
    return [f"{key}: {name} is {a[name]} in {here} and {b[name]} in {there}." for name in differing[:1]]


def _slot(record: Record) -> tuple[Any, ...]:
    """What a cell has one record of: each round and domain, or its failure."""
    return round_and_domain(record) if record["status"] == "ok" else (record["status"],)


def _has(records: Sequence[Record], status: str) -> bool:
    return any(record["status"] == status for record in records)


def _contradiction(key: str, one: tuple[Path, Record], other: tuple[Path, Record]) -> list[str]:
    """A sentence if two records of one round and domain differ in a number."""
    (here, a), (there, b) = one, other
    if a["status"] == "failed":  # two failures need not be alike
        return []
    names = sorted((a.keys() | b.keys()) - MACHINE_FIELDS - {"code"})  # `_other_code` compares code
    names = [name for name in names if name not in LATER_FIELDS or (name in a and name in b)]
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


def _disagreement(key: str, parts: Sequence[FolderRecords]) -> list[str]:
    """A sentence if a cell is unsupported in one folder and has results in another."""
    refused = [folder for folder, records in parts if _has(records, "unsupported")]
    ran = [folder for folder, records in parts if _has(records, "ok")]
    return [f"{key}: unsupported in {refused[0]}, and has results in {ran[0]}."] if refused and ran else []
