"""What a table refuses: numbers side by side that were not made the same way."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from tta_bench.layouts.records import GroupId, Record, RowId, Slot
from tta_bench.layouts.types import TableError

LONGEST_VALUE = 30  # characters of a value in a message


def refuse_mixed(layout: str, records: Sequence[Record], allow_mixed: bool) -> list[str]:
    """What is mixed, if that is allowed; otherwise an error that names it all at once."""
    mixed = [
        *_data(records),
        *_severities(records),
        *_fingerprints(records),
        *_versions(records),
        *_identities(records),
    ]
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


def row_differences(records: Iterable[Record]) -> dict[tuple[GroupId, RowId], tuple[str, ...]]:
    """For each row, in what its cells differ beside the seed: nothing, unless rows would mix."""
    found: dict[tuple[GroupId, RowId], dict[str, None]] = defaultdict(dict)
    for (group, row, _), values in _values(records, _of_row).items():
        found[group, row] |= dict.fromkeys(name for name, seen in values.items() if len(seen) > 1)
    return {place: tuple(names) for place, names in found.items() if names}


def told(record: Record, names: Sequence[str]) -> str:
    """Some facts of a record's cell, in words."""
    return ", ".join(f"{_short(name)}={_word(record.facts.get(name))}" for name in names)


def _of_row(record: Record) -> tuple[GroupId, RowId, str]:
    row = RowId(record.method, record.variant, record.reset, "")
    # Versions are told apart anyhow.
    return record.group, row, f"{record.facet}/{record.version}"


def _of_stream(record: Record) -> tuple[str, str, str]:
    return record.stream, record.data, record.facet


def _of_group(record: Record) -> tuple[GroupId, str, str]:
    return record.group, record.data, record.facet


def _values(
    records: Iterable[Record], place: Callable[[Record], Hashable]
) -> Mapping[Any, dict[str, dict[str, None]]]:
    """All values of all facts, by place."""
    found: dict[Any, dict[str, dict[str, None]]] = defaultdict(lambda: defaultdict(dict))
    for record in {(each.key, each.facet): each for each in records}.values():
        for name, value in record.facts.items():
            found[place(record)][name][_word(value)] = None
    return found


def _identities(records: Sequence[Record]) -> list[str]:
    """Facts in which cells differ that must share them: of a row all, of a table its images, …"""
    mixed: dict[str, dict[str, None]] = defaultdict(dict)
    for place, kinds in ((_of_stream, ("limit", "order")), (_of_group, ("model.", "quantizer.", "data."))):
        for values in _values(records, place).values():
            for name, seen in values.items():
                if name.startswith(kinds) and len(seen) > 1:
                    mixed[_short(name)] |= seen
    for (_, row, _), values in _values(records, _of_row).items():
        for name, seen in values.items():
            if len(seen) > 1 and _short(name) not in mixed:
                mixed[f"{_short(name)} of {row.method}"] |= seen
    return [_mixture(name, values) for name, values in mixed.items()]


def _mixture(name: str, values: Iterable[str]) -> str:
    """What is mixed: `filter_k 1, 20 of T3A`."""
    fact, of, method = name.partition(" of ")
    return f"{fact} {_listed(values)}{of}{method}"


def _short(name: str) -> str:
    """A fact as readers see it."""
    return name.removeprefix("method.").replace("_", " ") if "." not in name else name.removeprefix("method.")


def _word(value: Any) -> str:
    """A value in few words."""
    text = "none" if value is None else value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def _data(records: Iterable[Record]) -> list[str]:
    """Several sets of images, where a layout does not keep them apart."""
    found: dict[str, set[str]] = defaultdict(set)
    for record in records:
        found[record.facet].add(record.data)
    return [f"data {_listed(names)}" for names in found.values() if len(names) > 1][:1]


def _severities(records: Iterable[Record]) -> list[str]:
    """Several severities; 0 is an undamaged image and goes with any."""
    found: dict[str, set[int]] = defaultdict(set)
    for record in records:
        if record.slot is not None and record.slot.severity > 0:
            found[record.stream].add(record.slot.severity)
    return [f"severities {_listed(seen)}" for seen in found.values() if len(seen) > 1][:1]


def _fingerprints(records: Iterable[Record]) -> list[str]:
    """The first place in the stream where methods saw different images, or another order."""
    cells: dict[tuple[int, Slot], dict[str, str]] = defaultdict(dict)
    for record in records:
        if record.ok and record.fingerprint and record.slot is not None:
            # Whatever the facets are, the same data must come in the same order.
            place = record.slot._replace(facet=f"{record.data}/{record.stream}")
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
