"""What a table refuses: numbers side by side that were not made the same way."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from tta_bench.layouts.records import Record, Slot
from tta_bench.layouts.types import TableError


def refuse_mixed(layout: str, records: Sequence[Record], allow_mixed: bool) -> list[str]:
    """What is mixed, if that is allowed; otherwise an error that names it all at once."""
    mixed = [*_data(records), *_severities(records), *_fingerprints(records), *_versions(records)]
    if mixed and not allow_mixed:
        raise TableError(
            f"table {layout}",
            f"one table would mix {'; '.join(mixed)}",
            "Select records that belong together, or allow it, with a footnote: allow_mixed",
        )
    return mixed


def mixed_versions(records: Iterable[Record]) -> dict[str, list[str]]:
    """The methods that occur in several versions, with these."""
    versions: dict[str, set[str]] = defaultdict(set)
    for record in records:
        if record.version:
            versions[record.method].add(record.version)
    return {method: sorted(found) for method, found in sorted(versions.items()) if len(found) > 1}


def refuse_doubles(layout: str, rows: Iterable[tuple[Iterable[str], Sequence[Record]]]) -> None:
    """An error if one row and seed holds two cells: their mean would pass for one over seeds."""
    for row, records in rows:
        keys: dict[tuple[int, str], set[str]] = defaultdict(set)
        for record in records:
            keys[record.seed, record.facet].add(record.key)
        for (seed, _), found in sorted(keys.items()):
            if len(found) > 1:
                _double(layout, row, f"{len(found)} cells of seed {seed}: {_listed(found)}")
        for (key, slot), times in Counter((r.key, r.slot) for r in records if r.ok).items():
            if times > 1 and slot is not None:
                where = f"round {slot.round}, {slot.corruption}-{slot.severity}"
                _double(layout, row, f"{times} records of cell {key} at {where}")


def _double(layout: str, row: Iterable[str], problem: str) -> NoReturn:
    """Raise the error of a row that is claimed twice."""
    raise TableError(
        f"table {layout}: {' '.join(part for part in row if part)}",
        problem,
        "Give each its own method name or variant, or select one of them",
    )


def _data(records: Iterable[Record]) -> list[str]:
    """Several sets of images, where a layout does not keep them apart."""
    found: dict[str, set[str]] = defaultdict(set)
    for record in records:
        found[record.facet].add(record.data)
    return [f"data {_listed(names)}" for names in found.values() if len(names) > 1][:1]


def _severities(records: Iterable[Record]) -> list[str]:
    """Several severities; 0 is an undamaged image and goes with any."""
    found = sorted({r.slot.severity for r in records if r.slot is not None and r.slot.severity > 0})
    return [f"severities {_listed(found)}"] if len(found) > 1 else []


def _fingerprints(records: Iterable[Record]) -> list[str]:
    """The first place in the stream where methods saw different images, or another order."""
    cells: dict[tuple[int, Slot], dict[str, str]] = defaultdict(dict)
    for record in records:
        if record.ok and record.fingerprint and record.slot is not None:
            # Whatever the facets are, the same data must come in the same order.
            place = record.slot._replace(facet=record.data)
            cells[record.seed, place].setdefault(record.fingerprint, record.key)
    different = {place: found for place, found in cells.items() if len(found) > 1}
    if not different:
        return []
    seed, slot = min(different)
    where = f"seed {seed}, round {slot.round}, {slot.corruption}-{slot.severity}"
    more = f" and {len(different) - 1} more places" if len(different) > 1 else ""
    return [f"streams at {where}{more} (cells {_listed(different[seed, slot].values())})"]


def _versions(records: Iterable[Record]) -> list[str]:
    """Methods in several versions."""
    return [f"versions {_listed(v)} of {m}" for m, v in mixed_versions(records).items()]


def _listed(values: Iterable[Any]) -> str:
    """Values in order, separated by commas."""
    return ", ".join(str(value) for value in sorted(values))
