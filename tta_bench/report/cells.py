"""Provenance: everything that is recorded about a cell, except its results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tta_bench.storage.record import Record
from tta_bench.storage.store import ResultStore
from tta_bench.streams.names import DOMAIN_ORDER, without_order

if TYPE_CHECKING:
    from pandas import DataFrame

# The fields that define a stream, apart from the seed; cells of different streams never share a table.
STREAM = ("data", "domains", "rounds", "batch_size", "limit", "order", "scenario", "domain_order", "straddle")
NOT_RECORDED = "not recorded"


def provenance(
    cells: Mapping[str, tuple[Record, ResultStore]], frame: DataFrame
) -> dict[str, dict[str, Any]]:
    """The provenance of each cell, by key; `fingerprints` is the number of one of `fingerprints_of`."""
    by_cell = frame.assign(
        ok=frame["status"] == "ok",
        repeated=frame["repeats"].notna(),
        computed=frame["seconds"].where(frame["repeats"].isna()),
    ).groupby("key", observed=True, sort=False)
    sums: Any = by_cell[["ok", "repeated", "computed"]].sum().to_dict("index")
    worst = by_cell["status"].agg(lambda found: _status(set(found))).to_dict()
    return {key: _of_cell(*cells[key], sums[key], worst[key]) for key in sums}


def _status(found: set[str]) -> str:
    """The status of a cell from those of its domains."""
    return next(
        (status for status in ("unsupported", "failed") if status in found),
        "done" if found == {"ok"} else "missing",
    )


def _of_cell(cell: Record, store: ResultStore, sums: Mapping[str, Any], status: str) -> dict[str, Any]:
    facts = store.description(cell["key"]) or {}
    environments = list(facts.get("environments", {}).values()) or [{}]
    return {
        "key": cell["key"],
        "seed": cell["seed"],
        "status": status,
        "records": [int(sums["ok"]), cell["records_expected"]],
        "repeated": int(sums["repeated"]),
        "seconds": round(sums["computed"], 1),
        "weights": facts.get("weights_sha256") or cell["model"]["fingerprint"] or NOT_RECORDED,
        "plugins": {name: _json(cell[name]) for name in ("model", "quantizer", "method", "data")},
        "data_note": facts.get("data_note") or "",
        "variant": cell["variant"],
        "protocol": {name: cell[name] for name in ("order", "batch_size", "limit", "reset", "threads")},
        "versions": environments[-1].get("versions", {}),
        "device": _each(environments, "device"),
        "host": _each(environments, "host"),
    }


def fingerprints_of(frame: DataFrame) -> tuple[list[list[list[Any]]], dict[str, int]]:
    """The distinct lists of (round, corruption, fingerprint), and the number of the list of each cell.

    All cells of a seed see the same images and share a list.
    """
    ok = frame[["key", "round", "corruption", "fingerprint"]][frame["status"] == "ok"]
    known: dict[bytes, int] = {}
    lists: list[list[list[Any]]] = []
    numbers = {}
    codes = ok.assign(**{name: ok[name].cat.codes for name in ("corruption", "fingerprint")})
    for key, own in codes.groupby("key", observed=False, sort=False):
        place = own[["round", "corruption", "fingerprint"]].to_numpy(int).tobytes()
        if place not in known:
            known[place] = len(lists)
            lists.append(sorted(ok.loc[own.index].drop(columns="key").values.tolist()))
        numbers[str(key)] = known[place]
    return lists, numbers


def _json(value: Any) -> Any:
    """The value with infinities and NaN as texts, as JSON has no such numbers."""
    if isinstance(value, dict):
        return {name: _json(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_json(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _each(environments: Sequence[dict[str, Any]], name: str) -> str:
    """The distinct values of a field in the environments of a cell."""
    return "; ".join(dict.fromkeys(str(each.get(name, NOT_RECORDED)) for each in environments))


def stream_name(cell: Record) -> str:
    """A stream as text."""
    severities = sorted({severity for _, severity in cell["domains"] if severity})
    scenario, named = cell.get("scenario"), cell["labels"].get("stream", "")
    _, order = without_order(named)
    parts = [
        cell["data"]["use"],
        (named or scenario["use"]) if scenario else (order and f"{DOMAIN_ORDER} {order}"),
        _count(len(cell["domains"]), "domain"),
        f"severity {', '.join(map(str, severities))}" if severities else "",
        _count(cell["rounds"], "round"),
        f"{cell['limit']} images each" if cell["limit"] else "",
        f"batches of {cell['batch_size']}",
    ]
    return ", ".join(part for part in parts if part)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
