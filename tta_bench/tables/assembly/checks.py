"""Refuses tables whose numbers were not computed the same way, and so cannot be compared."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import combinations, starmap
from typing import Any

from pandas import DataFrame

from tta_bench.tables.layout import LayoutInput
from tta_bench.tables.table import TableError

LONGEST_VALUE = 30  # characters of a value in an error message
GROUP = ["model", "quantizer", "bits", "stream"]  # one quantised model on one stream
OWN = ["method", "variant", "reset"]  # of a row in its group
# What cells of one row, of one group or of one stream share, and the facts in which they must not differ.
OF_ROW = [*GROUP, *OWN, "facet", "version"]  # versions have rows of their own, so they may differ in any fact
OF_GROUP, GROUP_FACTS = [*GROUP, "data", "facet"], ("model.", "quantizer.", "data.")
OF_STREAM, STREAM_FACTS = ["stream", "data", "facet"], ("limit", "order")
ALL_FACTS = ["identity", "unseeded", "rounds", "batch_size"]
Different = dict[Any, dict[str, list[str]]]  # values of each fact that differs, by place


def refuse_mixed(given: LayoutInput, records: DataFrame) -> list[str]:
    """Everything that is mixed, if mixing is allowed; otherwise raises an error that names it.

    `records` are those that the table shows.
    """
    # A layout that puts several streams in one row says in `arrival` which stream a cell is on.
    cells = given.cells.assign(stream=given.cells.get("arrival", given.cells["stream"]))
    of_records = records.join(cells[["stream", "data", "seed", "key"]], on="cell")
    mixed = [
        *_several(cells, ["facet"], "data", "data")[:1],
        *_severities(of_records)[:1],
        *_fingerprints(of_records[of_records["ok"]]),
        *_orders(cells),
        *(f"versions {listed(found)} of {method}" for method, found in mixed_versions(cells).items()),
        *_identities(cells),
    ]
    if mixed and not given.options.allow_mixed:
        raise TableError(
            f"table {given.layout}",
            f"one table would mix {'; '.join(mixed)}",
            "Select records that belong together, or allow it, with a footnote: allow_mixed",
        )
    return mixed


def mixed_versions(cells: DataFrame) -> dict[str, list[str]]:
    """The methods that occur in several versions, with their versions."""
    found: Any = cells[cells["version"] != ""].groupby("method")["version"].unique()
    return {method: sorted(versions) for method, versions in found.items() if len(versions) > 1}


def row_differences(cells: DataFrame) -> dict[tuple[str, ...], tuple[str, ...]]:
    """For each row (GROUP and OWN) whose cells differ in more than the seed, the facts in which they do."""
    found: dict[tuple[str, ...], dict[str, None]] = defaultdict(dict)
    for place, values in _different(cells, OF_ROW, ALL_FACTS).items():
        found[place[: len(GROUP) + len(OWN)]] |= dict.fromkeys(values)
    return {place: tuple(names) for place, names in found.items()}


def named_facts(cell: Mapping[str, Any], names: Iterable[str]) -> str:
    """Some facts about a cell as text: `lr=0.1, steps=2`."""
    known = facts(cell)
    return ", ".join(f"{_short(name)}={_word(known.get(name))}" for name in names)


def facts(cell: Mapping[str, Any]) -> dict[str, Any]:
    """The identity of a cell without the seed: protocol, plugins, and the method's parameters."""
    method = {f"method.{name}": value for name, value in cell["settings"].items() if name != "seed"}
    return {"rounds": cell["rounds"], "batch_size": cell["batch_size"]} | cell["stated"] | method


def records_of(frame: DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame as dictionaries."""
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def listed(values: Iterable[Any]) -> str:
    """Sorted values, separated by commas."""
    return ", ".join(map(str, sorted(values)))


def _several(table: DataFrame, by: list[str], name: str, what: str) -> list[str]:
    """A text for each group with several values."""
    found = table.groupby(by, sort=False)[name].unique()
    return [f"{what} {listed(values)}" for values in found if len(values) > 1]


def _severities(records: DataFrame) -> list[str]:
    """A text for each stream whose cells have different severities; a scenario may have several itself."""
    found = []
    for _, of_stream in records[records["severity"] > 0].groupby("stream", sort=False):
        sets = of_stream.groupby("cell", sort=False)["severity"].agg(lambda each: listed(set(each)))
        if sets.nunique() > 1:
            found.append(f"severities {listed(of_stream['severity'].unique())}")
    return found


def _orders(cells: DataFrame) -> list[str]:
    """A text if cells of one stream come to their common domains in different orders."""
    for _, of_stream in cells.groupby(OF_STREAM, sort=False):
        known = of_stream["stated"].map(lambda stated: stated.get("listed", stated.get("domains")) or [])
        orders = {tuple(name for name, _ in each) for each in known} - {()}
        names = set(of_stream["stated"].map(lambda stated: stated.get("domain_order", "file")))
        if len(names) > 1 or any(starmap(_reordered, combinations(orders, 2))):
            return ["orders of domains"]
    return []


def _reordered(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether two cells come to the domains that both have in different orders."""
    return [name for name in one if name in other] != [name for name in other if name in one]


def _fingerprints(ok: DataFrame) -> list[str]:
    """The first slot in which methods saw other images or another order; facets must be alike, too."""
    place = ["seed", "round", "corruption", "severity", "data", "stream"]
    known = ok[ok["fingerprint"].notna()].drop_duplicates([*place, "fingerprint"])
    twice = known[known.duplicated(place, keep=False)].astype({"corruption": str})
    if twice.empty:
        return []
    slots = twice.sort_values([*place, "cell"], kind="stable").groupby(place)
    place_of: Any
    place_of, first = next(iter(slots))
    seed, round_, corruption, severity, *_ = place_of
    more = f" and {len(slots) - 1} more places" if len(slots) > 1 else ""
    where = f"seed {seed}, round {int(round_)}, {corruption}-{severity}"
    return [f"streams at {where}{more} (cells {listed(first['key'])})"]


def _identities(cells: DataFrame) -> list[str]:
    """Facts that differ but must not: any fact of a row, the plugins of a group, the images of a stream."""
    mixed: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for place, kinds in ((OF_STREAM, STREAM_FACTS), (OF_GROUP, GROUP_FACTS)):
        for values in _different(cells, place, ["identity"]).values():
            for name in (name for name in values if name.startswith(kinds)):
                mixed[_short(name), ""] |= dict.fromkeys(values[name])
    for (*_, method, _, _, _, _), values in _different(cells, OF_ROW, ALL_FACTS).items():
        for name in (name for name in values if (_short(name), "") not in mixed):
            mixed[_short(name), f" of {method}"] |= dict.fromkeys(values[name])
    return [f"{fact} {listed(values)}{of_method}" for (fact, of_method), values in mixed.items()]


def _different(cells: DataFrame, place: list[str], by: list[str]) -> Different:
    """The facts with several values among the cells of a place, with these; `by` are texts of the facts."""
    distinct = cells.drop_duplicates([*place, *by])
    found: Different = {}
    for where, members in distinct[distinct.duplicated(place, keep=False)].groupby(place, sort=False):
        seen: dict[str, dict[str, None]] = defaultdict(dict)
        for cell in records_of(members):
            for name, value in facts(cell).items():
                seen[name][_word(value)] = None
        if values := {name: list(words) for name, words in seen.items() if len(words) > 1}:
            found[where] = values
    return found


def _short(name: str) -> str:
    """The name of a fact in messages."""
    return name.removeprefix("method.").replace("_", " ") if "." not in name else name.removeprefix("method.")


def _word(value: Any) -> str:
    """A value as a short text."""
    text = "none" if value is None else value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"
