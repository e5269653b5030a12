"""Provenance: everything that is recorded about a cell, except its results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tta_bench.storage.record import Record, cell_status
from tta_bench.storage.store import ResultStore

# The fields that define a stream, apart from the seed; cells of different streams never share a table.
STREAM = ("data", "domains", "rounds", "batch_size", "limit", "order")
NOT_RECORDED = "not recorded"


class Fingerprints:
    """The distinct lists of stream fingerprints; all cells of a seed see the same images and share one."""

    def __init__(self) -> None:
        self.lists: list[list[list[Any]]] = []

    def number(self, records: Sequence[Record]) -> int:
        """The index of the list of (round, corruption, fingerprint) of these records."""
        found = sorted([r["round"], r["corruption"], r["fingerprint"]] for r in records)
        if found not in self.lists:
            self.lists.append(found)
        return self.lists.index(found)


def provenance(cell: Record, store: ResultStore, fingerprints: Fingerprints) -> dict[str, Any]:
    """The provenance of one cell."""
    records = store.read(cell["key"])
    facts = store.description(cell["key"]) or {}
    environments = list(facts.get("environments", {}).values()) or [{}]
    ok = [r for r in records if r["status"] == "ok"]
    return {
        "key": cell["key"],
        "seed": cell["seed"],
        "status": cell_status(records, cell["records_expected"]),
        "records": [len(ok), cell["records_expected"]],
        "repeated": sum("repeats" in record for record in ok),
        "seconds": round(sum(r["seconds"] for r in ok if "repeats" not in r), 1),
        "weights": facts.get("weights_sha256") or cell["model"]["fingerprint"] or NOT_RECORDED,
        "plugins": {name: _json(cell[name]) for name in ("model", "quantizer", "method", "data")},
        "data_note": facts.get("data_note") or "",
        "variant": cell["variant"],
        "protocol": {name: cell[name] for name in ("order", "batch_size", "limit", "reset", "threads")},
        "versions": environments[-1].get("versions", {}),
        "device": _each(environments, "device"),
        "host": _each(environments, "host"),
        "fingerprints": fingerprints.number(ok),
    }


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
    parts = [
        cell["data"]["use"],
        _count(len(cell["domains"]), "domain"),
        f"severity {', '.join(map(str, severities))}" if severities else "",
        _count(cell["rounds"], "round"),
        f"{cell['limit']} images each" if cell["limit"] else "",
        f"batches of {cell['batch_size']}",
    ]
    return ", ".join(part for part in parts if part)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
