"""`tta-bench status`: how far each cell is, from the results folder alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tta_bench.describe import Description, columns
from tta_bench.folder_view import mean_accuracy
from tta_bench.store import ResultStore, cell_status, place_of


def describe(store: ResultStore) -> Description:
    """State, records and accuracy so far of every cell, and the reason where there is one."""
    rows, reasons = [], []
    for cell in store.manifest()["cells"]:
        records = store.read(cell["key"])
        rows.append(_row(cell, records))
        for record in records:
            if record["status"] == "failed":
                reasons.append(f"{cell['key']}:\n{record['reason'].rstrip()}")
    counts = Counter(row["state"] for row in rows)
    summary = ", ".join(f"{n} {state}" for state, n in sorted(counts.items()))
    text = "\n\n".join([f"{store.folder}: {summary}", columns(rows), *reasons])
    return Description(text, {"folder": str(store.folder), "states": counts, "cells": rows})


def _row(cell: dict[str, Any], records: list[dict[str, Any]]) -> dict[str, Any]:
    ok = list({place_of(r): r for r in records if r["status"] == "ok"}.values())
    state = cell_status(records, cell["records_expected"])
    accuracy = mean_accuracy(ok)
    reason = next((r["reason"] for r in records if r["status"] != "ok"), "")
    return {
        "model": cell["labels"]["model"],
        "bits": cell["bits"],
        "method": cell["labels"]["method"],
        **({"stream": stream} if (stream := cell["labels"].get("stream")) else {}),
        "seed": cell["seed"],
        "state": state,
        "records": f"{len(ok)}/{cell['records_expected']}",
        "accuracy": "" if accuracy is None else f"{accuracy:.1f}" + " so far" * (state != "done"),
        "note": reason.strip().split("\n")[-1],
    }
