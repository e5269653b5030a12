"""Where a number comes from: everything that is recorded about a cell, without its results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tta_bench.store import Record, ResultStore, cell_status

# What makes a stream, whatever the seed; cells that differ in any of it never share a table.
STREAM = ("data", "domains", "rounds", "batch_size", "limit", "order")
UNTOLD = "not recorded"


class Fingerprints:
    """The fingerprints of streams, equal ones once: all cells of a seed saw the same images."""

    def __init__(self) -> None:
        self.lists: list[list[list[Any]]] = []

    def number(self, records: Sequence[Record]) -> int:
        """The number of the list of (round, corruption, fingerprint) that these records have."""
        found = sorted([r["round"], r["corruption"], r["fingerprint"]] for r in records)
        if found not in self.lists:
            self.lists.append(found)
        return self.lists.index(found)


def provenance(cell: Record, store: ResultStore, fingerprints: Fingerprints) -> dict[str, Any]:
    """What the page shows about one cell."""
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
        "weights": facts.get("weights_sha256") or cell["model"]["fingerprint"] or UNTOLD,
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
    """The value with numbers that JSON does not have as texts."""
    if isinstance(value, dict):
        return {name: _json(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_json(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _each(environments: Sequence[dict[str, Any]], name: str) -> str:
    """What the machines that computed a cell say, each thing once."""
    return "; ".join(dict.fromkeys(str(each.get(name, UNTOLD)) for each in environments))


def stream_name(cell: Record) -> str:
    """A stream in words."""
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
