"""Records → one tidy DataFrame, a row for every cell, round and domain. Reads only the results folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from tta_bench.store import Record, ResultStore

MIB = 2**20


def load(store: ResultStore) -> pd.DataFrame:
    """All records of a benchmark, with the names and the order of its last run."""
    rows: list[dict[str, Any]] = []
    for cell in store.manifest()["cells"]:
        rows += list(_rows(cell, store.read(cell["key"])))
    return pd.DataFrame(rows)


def _rows(cell: dict[str, Any], records: Sequence[Record]) -> Iterator[dict[str, Any]]:
    """The rows of one cell; at least one, so that nothing drops out of a table unseen."""
    facts: Record = {}
    domains = []
    for record in records:
        if record["kind"] == "cell":
            facts = record
        else:
            domains.append(record)
    common = _common(cell, facts)
    order = {tuple(domain): i for i, domain in enumerate(cell["domains"])}
    for record in domains:
        yield common | _measured(record, order)
    ok = sum(record["status"] == "ok" for record in domains)
    if all(record["status"] == "ok" for record in domains) and ok < cell["records_expected"]:
        reason = f"not run yet: {ok} of {cell['records_expected']} records"
        yield common | {"status": "pending", "reason": reason}


def _common(cell: dict[str, Any], facts: Record) -> dict[str, Any]:
    labels = cell["labels"]
    model_order, quantizer_order, method_order = labels["order"]
    return {
        "key": cell["key"],
        "model": labels["model"],
        "quantizer": labels["quantizer"],
        "method": labels["method"],
        "model_order": model_order,
        "quantizer_order": quantizer_order,
        "method_order": method_order,
        "bits": cell["bits"],
        "seed": cell["seed"],
        "reset": cell["reset"],
        "rounds": cell["rounds"],
        "version": cell["method"]["version"],
        "variant": cell["variant"],
        "backprop": cell["backprop"],
        "memory_mib": _mib(facts.get("memory_bytes")),
        "packed_mib": _mib(facts.get("packed_bytes")),
        "measured_mib": _mib(facts.get("measured_bytes")),
        "status": "pending",
        "reason": "",
    }


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
        "nonfinite_images": record["nonfinite_images"],
        "seconds": record["seconds"],
        "repeats": record.get("repeats"),
        "fingerprint": record["fingerprint"],
    }


def _mib(count: int | None) -> float | None:
    return None if count is None else count / MIB
