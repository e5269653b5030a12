"""Records → one tidy DataFrame, a row for every cell, round and domain. Reads only the results folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from tta_bench.store import Record, ResultStore, place_of

MIB = 2**20
# What only a domain that has run can tell; columns all the same where none has.
OF_A_DOMAIN = (
    "round",
    "corruption",
    "severity",
    "domain_order",
    "n",
    "correct",
    "accuracy",
    "top5",
    "ece",
    "forwards",
    "backwards",
    "skipped_updates",
    "skipped_reasons",
    "counters",
    "nonfinite_images",
    "seconds",
    "repeats",
    "fingerprint",
    "correct_per_batch",
)


def load(*stores: ResultStore, earlier: bool = False) -> pd.DataFrame:
    """All records of the last runs of benchmarks, or of complete cells of earlier runs; a cell once only."""
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
    """Cells as a results folder tells them, before any has run; with each, what is known of it already."""
    rows: list[dict[str, Any]] = []
    for cell, facts in cells:
        common = _common(cell, facts) | {name: facts[name] for name in ("status", "reason")}
        rows += [common | place for place in _places(cell).values()]
    return _tidy(rows)


def _tidy(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows)
    absent = [name for name in OF_A_DOMAIN if name not in frame]
    return frame if frame.empty else frame.assign(**dict.fromkeys(absent))


def _rows(cell: Record, facts: Record, records: Sequence[Record]) -> Iterator[dict[str, Any]]:
    """The rows of one cell: one for every round and domain that it is to have, whether it has it or not."""
    newest = {place_of(record): record for record in records}  # of a domain written twice, the last counts
    common = _common(cell, facts) | _provenance(cell, facts, list(newest.values()))
    places = _places(cell)
    for where, record in newest.items():
        yield common | places.get(where, {}) | _measured(record)
    for where, place in places.items():
        if where not in newest:
            yield common | place


def _places(cell: Record) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Every round and domain that a cell is to have."""
    return {
        (number, corruption, severity): {
            "round": number,
            "corruption": corruption,
            "severity": severity,
            "domain_order": i,
        }
        for number in range(1, cell["rounds"] + 1)
        for i, (corruption, severity) in enumerate(cell["domains"])
    }


def _common(cell: Record, facts: Record) -> dict[str, Any]:
    labels = cell["labels"]
    model_order, quantizer_order, method_order = labels["order"]
    return {
        "key": cell["key"],
        "data": cell["data"]["use"],
        "model": labels["model"],
        "quantizer": labels["quantizer"],
        "method": labels["method"],
        "model_order": model_order,
        "quantizer_order": quantizer_order,
        "method_order": method_order,
        "model_plugin": cell["model"]["use"],
        "method_plugin": cell["method"]["use"],
        "params": json.dumps(cell["method"]["params"], sort_keys=True),
        "bits": cell["bits"],
        "seed": cell["seed"],
        "reset": cell["reset"],
        "stream": labels.get("stream", ""),
        "identity": json.dumps(_identity(cell), sort_keys=True),
        "data_note": facts.get("data_note") or "",
        "code": cell["code"],
        "rounds": cell["rounds"],
        "batch_size": cell["batch_size"],
        "version": cell["method"]["version"],
        "variant": cell["variant"],
        "backprop": cell["backprop"],
        "memory_mib": _mib(facts.get("memory_bytes")),
        "packed_mib": _mib(facts.get("packed_bytes")),
        "measured_mib": _mib(facts.get("measured_bytes")),
        "other_code": False,
        "environment": "",
        "status": "pending",
        "reason": "",
    }


def _identity(cell: Record) -> dict[str, Any]:
    """All that the cells of one row must share but the method and the seed, each fact by its name."""
    found = {name: cell[name] for name in ("domains", "rounds", "batch_size", "limit", "order", "threads")}
    for axis in ("model", "quantizer", "data"):
        plugin = cell[axis]
        found |= {f"{axis}.{name}": plugin[name] for name in ("use", "version", "fingerprint")}
        # What files hold is in the fingerprint; where they are may differ from machine to machine.
        kept = {k: v for k, v in plugin["params"].items() if not (plugin["fingerprint"] and _is_path(v))}
        found |= {f"{axis}.{name}": value for name, value in kept.items()}
    return found | {f"corruption.{each['use']}": each["version"] for each in cell["corruptions"]}


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and ("/" in value or "\\" in value)


def _provenance(cell: Record, facts: Record, records: Sequence[Record]) -> dict[str, Any]:
    """Whether other code than the last run's made a cell, and in what environments it was computed."""
    known = facts.get("environments", {})
    used = dict.fromkeys(record["environment"] for record in records if "environment" in record)
    return {
        "other_code": any(record["code"] != cell["code"] for record in records),
        "environment": "; ".join(dict.fromkeys(_named(known.get(each)) for each in used)),
    }


def _named(environment: Record | None) -> str:
    """What may round sums differently, in words."""
    if environment is None:
        return "an unknown environment"
    versions = environment["versions"]
    return (
        f"torch {versions['torch']}, timm {versions['timm']}, {environment['device']}, {environment['cpu']}"
    )


def _measured(record: Record) -> dict[str, Any]:
    if record["status"] != "ok":
        return {"status": record["status"], "reason": record["reason"]}
    images, reasons = record["images"], record.get("skipped_reasons")
    return {
        "status": "ok",
        "n": images,
        "correct": record["correct"],
        "accuracy": 100 * record["correct"] / images,
        "top5": 100 * record["top5_correct"] / images,
        "ece": 100 * record["ece"],
        "forwards": record["forward_images"] / images,
        "backwards": record["backward_images"] / images,
        "skipped_updates": record["skipped_updates"],
        "skipped_reasons": json.dumps(reasons, sort_keys=True) if reasons else "{}",
        "counters": json.dumps(record.get("counters", {}), sort_keys=True),
        "nonfinite_images": record["nonfinite_images"],
        "seconds": record["seconds"],
        "repeats": record.get("repeats"),
        "fingerprint": record["fingerprint"],
        "correct_per_batch": record["correct_per_batch"],
    }


def _mib(count: int | None) -> float | None:
    return None if count is None else count / MIB
