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
    "nonfinite_images",
    "seconds",
    "repeats",
    "fingerprint",
    "correct_per_batch",
)


def load(*stores: ResultStore) -> pd.DataFrame:
    """All records of benchmarks, with the names and the order of their last runs; a cell once only."""
    rows: list[dict[str, Any]] = []
    seen = set()
    for store in stores:
        for cell in store.manifest()["cells"]:
            if cell["key"] not in seen:
                facts = store.description(cell["key"]) or {}
                rows += list(_rows(cell, facts, store.read(cell["key"])))
            seen.add(cell["key"])
    return _tidy(rows)


def planned(cells: Sequence[tuple[Record, Record]]) -> pd.DataFrame:
    """Cells as a results folder tells them, before any has run; with each, what is known of it already."""
    told = ("status", "reason")
    return _tidy([_common(cell, facts) | {name: facts[name] for name in told} for cell, facts in cells])


def _tidy(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows)
    absent = [name for name in OF_A_DOMAIN if name not in frame]
    return frame if frame.empty else frame.assign(**dict.fromkeys(absent))


def _rows(cell: Record, facts: Record, records: Sequence[Record]) -> Iterator[dict[str, Any]]:
    """The rows of one cell; at least one, so that nothing drops out of a table unseen."""
    newest = {place_of(record): record for record in records}  # of a domain written twice, the last counts
    domains = list(newest.values())
    common = _common(cell, facts) | _provenance(cell, facts, domains)
    order = {tuple(domain): i for i, domain in enumerate(cell["domains"])}
    for record in domains:
        yield common | _measured(record, order)
    ok = sum(record["status"] == "ok" for record in domains)
    if all(record["status"] == "ok" for record in domains) and ok < cell["records_expected"]:
        reason = f"not run yet: {ok} of {cell['records_expected']} records"
        yield common | {"status": "pending", "reason": reason}


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


def _measured(record: Record, order: dict[tuple[Any, ...], int]) -> dict[str, Any]:
    if record["status"] != "ok":
        return {"status": record["status"], "reason": record["reason"]}
    images = record["images"]
    return {
        "status": "ok",
        "round": record["round"],
        "corruption": record["corruption"],
        "severity": record["severity"],
        "domain_order": order[record["corruption"], record["severity"]],
        "n": images,
        "correct": record["correct"],
        "accuracy": 100 * record["correct"] / images,
        "top5": 100 * record["top5_correct"] / images,
        "ece": 100 * record["ece"],
        "forwards": record["forward_images"] / images,
        "backwards": record["backward_images"] / images,
        "skipped_updates": record["skipped_updates"],
        "skipped_reasons": json.dumps(record.get("skipped_reasons", {}), sort_keys=True),
        "nonfinite_images": record["nonfinite_images"],
        "seconds": record["seconds"],
        "repeats": record.get("repeats"),
        "fingerprint": record["fingerprint"],
        "correct_per_batch": record["correct_per_batch"],
    }


def _mib(count: int | None) -> float | None:
    return None if count is None else count / MIB
