"""Reads a results folder into one tidy DataFrame with a row for every cell, round and domain."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from types import MappingProxyType
from typing import Any

import pandas as pd

from tta_bench.storage.record import Record, round_and_domain
from tta_bench.storage.store import ResultStore

MIB = 2**20
PLACE = ("round", "corruption", "severity", "domain_order")
# The columns that only finished domains fill, from their records; the frame always has them.
MEASURED: Mapping[str, Callable[[Record], Any]] = MappingProxyType(
    {
        "n": itemgetter("images"),
        "correct": itemgetter("correct"),
        "accuracy": lambda record: 100 * record["correct"] / record["images"],
        "top5": lambda record: 100 * record["top5_correct"] / record["images"],
        "ece": lambda record: 100 * record["ece"],
        "forwards": lambda record: record["forward_images"] / record["images"],
        "backwards": lambda record: record["backward_images"] / record["images"],
        "skipped_updates": itemgetter("skipped_updates"),
        "skipped_reasons": lambda record: json.dumps(record.get("skipped_reasons") or {}, sort_keys=True),
        "counters": lambda record: json.dumps(record.get("counters", {}), sort_keys=True),
        "nonfinite_images": itemgetter("nonfinite_images"),
        "seconds": itemgetter("seconds"),
        "repeats": lambda record: record.get("repeats"),
        "fingerprint": itemgetter("fingerprint"),
        "correct_per_batch": itemgetter("correct_per_batch"),
    }
)
# The facts that a frame takes unchanged from the description of a cell, and from its labels.
OF_THE_CELL = ("key", "bits", "seed", "reset", "code", "rounds", "batch_size", "variant", "backprop")
LABELS = ("model", "quantizer", "method")


def load(*stores: ResultStore, earlier: bool = False) -> pd.DataFrame:
    """The records of the last run of each store, or of complete cells of earlier runs; each cell once."""
    rows: list[dict[str, Any]] = []
    seen = set()
    for store in stores:
        for cell in store.earlier() if earlier else store.manifest()["cells"]:
            if cell["key"] not in seen:
                facts = store.description(cell["key"]) or {}
                rows += list(_rows(cell, facts, store.read(cell["key"])))
            seen.add(cell["key"])
    return _tidy(rows)


def planned(cells: Sequence[tuple[Record, Record]]) -> pd.DataFrame:
    """The frame of cells before they run, from the description of each and the facts known about it."""
    rows: list[dict[str, Any]] = []
    for cell, facts in cells:
        common = _common(cell, facts) | {name: facts[name] for name in ("status", "reason")}
        rows += [common | place for place in _places(cell).values()]
    return _tidy(rows)


def _tidy(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows)
    absent = [name for name in (*PLACE, *MEASURED) if name not in frame]
    return frame if frame.empty else frame.assign(**dict.fromkeys(absent))


def _rows(cell: Record, facts: Record, records: Sequence[Record]) -> Iterator[dict[str, Any]]:
    """The rows of one cell: one for every round and domain, finished or not."""
    # Of a domain written twice, the last counts.
    newest = {round_and_domain(record): record for record in records}
    common = _common(cell, facts) | _provenance(cell, facts, list(newest.values()))
    places = _places(cell)
    for where, record in newest.items():
        yield common | places.get(where, {}) | _measured(record)
    for where, place in places.items():
        if where not in newest:
            yield common | place


def _places(cell: Record) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Every round and domain of a cell."""
    return {
        (number, *domain, 1): dict(zip(PLACE, (number, *domain, i), strict=True))
        for number in range(1, cell["rounds"] + 1)
        for i, domain in enumerate(cell["domains"])
    }


def _common(cell: Record, facts: Record) -> dict[str, Any]:
    labels = cell["labels"]
    sizes = {name: facts.get(f"{name}_bytes") for name in ("memory", "packed", "measured")}
    return {
        **{name: cell[name] for name in OF_THE_CELL},
        **{name: labels[name] for name in LABELS},
        **{f"{name}_order": order for name, order in zip(LABELS, labels["order"], strict=True)},
        **{f"{name}_mib": None if size is None else size / MIB for name, size in sizes.items()},
        "data": cell["data"]["use"],
        "model_plugin": cell["model"]["use"],
        "method_plugin": cell["method"]["use"],
        "params": json.dumps(cell["method"]["params"], sort_keys=True),
        "version": cell["method"]["version"],
        "stream": labels.get("stream", ""),
        "identity": json.dumps(_identity(cell), sort_keys=True),
        "data_note": facts.get("data_note") or "",
        "other_code": False,
        "environment": "",
        "status": "pending",
        "reason": "",
    }


def _identity(cell: Record) -> dict[str, Any]:
    """All facts that the cells of one row must share, by name, except the method and the seed."""
    found = {name: cell[name] for name in ("domains", "rounds", "batch_size", "limit", "order", "threads")}
    for axis in ("model", "quantizer", "data"):
        plugin = cell[axis]
        found |= {f"{axis}.{name}": plugin[name] for name in ("use", "version", "fingerprint")}
        # The fingerprint covers the content of files; their paths may differ between machines.
        kept = {k: v for k, v in plugin["params"].items() if not (plugin["fingerprint"] and _is_path(v))}
        found |= {f"{axis}.{name}": value for name, value in kept.items()}
    return found | {f"corruption.{each['use']}": each["version"] for each in cell["corruptions"]}


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and ("/" in value or "\\" in value)


def _provenance(cell: Record, facts: Record, records: Sequence[Record]) -> dict[str, Any]:
    """Whether a cell was computed by other code than the last run's, and in which environments."""
    known = facts.get("environments", {})
    used = dict.fromkeys(record["environment"] for record in records if "environment" in record)
    return {
        "other_code": any(record["code"] != cell["code"] for record in records),
        "environment": "; ".join(dict.fromkeys(_named(known.get(each)) for each in used)),
    }


def _named(environment: Record | None) -> str:
    """The versions and devices that may change results by rounding, as text."""
    if environment is None:
        return "an unknown environment"
    versions = environment["versions"]
    return (
        f"torch {versions['torch']}, timm {versions['timm']}, {environment['device']}, {environment['cpu']}"
    )


def _measured(record: Record) -> dict[str, Any]:
    if record["status"] != "ok":
        return {"status": record["status"], "reason": record["reason"]}
    return {"status": "ok"} | {name: value_of(record) for name, value_of in MEASURED.items()}
