"""Refuses tables whose numbers were not computed the same way, and so cannot be compared."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from tta_bench.tables.assembly.records import GroupId, RowId, Slot, TidyRecord, gathered
from tta_bench.tables.table import TableError

LONGEST_VALUE = 30  # characters of a value in an error message


def refuse_mixed(layout: str, records: Sequence[TidyRecord], allow_mixed: bool) -> list[str]:
    """Everything that is mixed, if mixing is allowed; otherwise raises an error that names it."""
    mixed = [
        *_data(records),
        *_severities(records),
        *_fingerprints(records),
        *(f"versions {_listed(v)} of {method}" for method, v in mixed_versions(records).items()),
        *_identities(records),
    ]
    if mixed and not allow_mixed:
        raise TableError(
            f"table {layout}",
            f"one table would mix {'; '.join(mixed)}",
            "Select records that belong together, or allow it, with a footnote: allow_mixed",
        )
    return mixed


def mixed_versions(records: Iterable[TidyRecord]) -> dict[str, list[str]]:
    """The methods that occur in several versions, with their versions."""
    versions = gathered((record.method, record.version) for record in records if record.version)
    return {method: sorted(found) for method, found in sorted(versions.items()) if len(found) > 1}


def refuse_doubles(layout: str, rows: Iterable[tuple[Iterable[str], Sequence[TidyRecord]]]) -> None:
    """Raise an error if a row has two cells of one seed, as their mean would look like a mean over seeds."""
    for row, records in rows:
        keys = gathered(((record.seed, record.facet), record.key) for record in records)
        for (seed, _), found in sorted(keys.items()):
            if len(found) > 1:
                _double(layout, row, f"{len(found)} cells of seed {seed}: {_listed(found)}")
        for (key, slot), times in Counter((r.key, r.slot) for r in records if r.ok).items():
            if times > 1 and slot is not None:
                where = f"round {slot.round}, {slot.corruption}-{slot.severity}"
                _double(layout, row, f"{times} records of cell {key} at {where}")


def _double(layout: str, row: Iterable[str], problem: str) -> NoReturn:
    """Raise the error about a row with two cells of one seed."""
    raise TableError(
        f"table {layout}: {' '.join(part for part in row if part)}",
        problem,
        "Give each its own method name or variant, or select one of them",
    )


def row_differences(records: Iterable[TidyRecord]) -> dict[tuple[GroupId, RowId], tuple[str, ...]]:
    """For each row whose cells differ in more than the seed, the facts in which they differ."""
    found: dict[tuple[GroupId, RowId], dict[str, None]] = defaultdict(dict)
    for (group, row, _), values in _values(records, _of_row).items():
        found[group, row] |= dict.fromkeys(name for name, seen in values.items() if len(seen) > 1)
    return {place: tuple(names) for place, names in found.items() if names}


def named_facts(record: TidyRecord, names: Sequence[str]) -> str:
    """Some facts about a record's cell as text: `lr=0.1, steps=2`."""
    return ", ".join(f"{_short(name)}={_word(record.facts.get(name))}" for name in names)


def _of_row(record: TidyRecord) -> tuple[GroupId, RowId, str]:
    row = RowId(record.method, record.variant, record.reset, "")
    # Versions have rows of their own, so they may differ in any fact.
    return record.group, row, f"{record.facet}/{record.version}"


def _of_stream(record: TidyRecord) -> tuple[str, str, str]:
    return record.stream, record.data, record.facet


def _of_group(record: TidyRecord) -> tuple[GroupId, str, str]:
    return record.group, record.data, record.facet


def _values(
    records: Iterable[TidyRecord], place: Callable[[TidyRecord], Hashable]
) -> Mapping[Any, dict[str, dict[str, None]]]:
    """All values of all facts, grouped by a key of the record."""
    found: dict[Any, dict[str, dict[str, None]]] = defaultdict(lambda: defaultdict(dict))
    for record in {(each.key, each.facet): each for each in records}.values():
        for name, value in record.facts.items():
            found[place(record)][name][_word(value)] = None
    return found


def _identities(records: Sequence[TidyRecord]) -> list[str]:
    """Facts that differ but must not: any fact of a row, the plugins of a group, the images of a stream."""
    mixed: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for place, kinds in ((_of_stream, ("limit", "order")), (_of_group, ("model.", "quantizer.", "data."))):
        for values in _values(records, place).values():
            for name, seen in values.items():
                if name.startswith(kinds) and len(seen) > 1:
                    mixed[_short(name), ""] |= seen
    for (_, row, _), values in _values(records, _of_row).items():
        for name, seen in values.items():
            if len(seen) > 1 and (_short(name), "") not in mixed:
                mixed[_short(name), f" of {row.method}"] |= seen
    return [f"{fact} {_listed(values)}{of_method}" for (fact, of_method), values in mixed.items()]


def _short(name: str) -> str:
    """The name of a fact in messages."""
    return name.removeprefix("method.").replace("_", " ") if "." not in name else name.removeprefix("method.")


def _word(value: Any) -> str:
    """A value as a short text."""
    text = "none" if value is None else value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def _data(records: Iterable[TidyRecord]) -> list[str]:
    """Several data sets, if a layout does not separate them."""
    found = gathered((record.facet, record.data) for record in records)
    return [f"data {_listed(names)}" for names in found.values() if len(names) > 1][:1]


def _severities(records: Iterable[TidyRecord]) -> list[str]:
    """Several severities; 0, the clean images, may occur with any."""
    places = ((record.stream, record.slot) for record in records)
    found = gathered((stream, slot.severity) for stream, slot in places if slot and slot.severity > 0)
    return [f"severities {_listed(seen)}" for seen in found.values() if len(seen) > 1][:1]


def _fingerprints(records: Iterable[TidyRecord]) -> list[str]:
    """The first slot in which methods saw other images or another order."""
    cells: dict[tuple[int, Slot], dict[str, str]] = defaultdict(dict)
    for record in records:
        if record.ok and record.fingerprint and record.slot is not None:
            # The same data must come in the same order in all facets.
            place = record.slot._replace(facet=f"{record.data}/{record.stream}")
            cells[record.seed, place].setdefault(record.fingerprint, record.key)
    different = {place: found for place, found in cells.items() if len(found) > 1}
    if not different:
        return []
    seed, slot = min(different)
    where = f"seed {seed}, round {slot.round}, {slot.corruption}-{slot.severity}"
    more = f" and {len(different) - 1} more places" if len(different) > 1 else ""
    return [f"streams at {where}{more} (cells {_listed(different[seed, slot].values())})"]


def _listed(values: Iterable[Any]) -> str:
    """Sorted values, separated by commas."""
    return ", ".join(str(value) for value in sorted(values))
