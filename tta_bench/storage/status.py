"""How far each cell of a results folder is: `tta-bench status`, once or while a run writes to it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tta_bench.description import Description, columns
from tta_bench.storage import workers
from tta_bench.storage.manifest import MANIFEST
from tta_bench.storage.record import Record, cell_status, latest_results
from tta_bench.storage.store import ResultStore

FINAL = ("done", "unsupported", "failed")


def describe(store: ResultStore) -> Description:
    """State, records and accuracy so far of every cell, and the reason of each failure."""
    rows, reasons = [], []
    for cell in store.manifest()["cells"]:
        records = store.read(cell["key"])
        rows.append(_row(cell, records))
        for record in records:
            if record["status"] == "failed":
                reasons.append(f"{cell['key']}:\n{record['reason'].rstrip()}")
    counts = Counter(row["state"] for row in rows)
    summary = ", ".join(f"{n} {state}" for state, n in sorted(counts.items()))
    _, _, busy = _writing(store.folder)
    working = [columns(workers.shown(busy, time.time()))] if busy else []
    text = "\n\n".join([f"{store.folder}: {summary}", columns(rows), *working, *reasons])
    data = {"folder": str(store.folder), "states": counts, "cells": rows}
    return Description(text, data | ({"workers": busy} if busy else {}))


def _writing(folder: Path) -> tuple[str, float, list[Record]]:
    """The process that is writing, or an empty text; when it began; what its workers do."""
    lock = folder / "lock"
    holder = lock.read_text().strip() if lock.is_file() else ""
    begun = _changed(lock)
    return holder, begun, workers.read(folder, begun) if holder else []


def _row(cell: Record, records: Sequence[Record]) -> dict[str, Any]:
    ok = latest_results(records)
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


def mean_accuracy(records: Sequence[Record]) -> float | None:
    """The mean accuracy (%) over rounds and domains, as in tables: clean images count only if alone."""
    corrupted = [record for record in records if record["corruption"] != "clean"] or records
    values = [100 * record["correct"] / record["images"] for record in corrupted]
    return sum(values) / len(values) if values else None


# -- while a run writes ------------------------------------------------------------------------------


@dataclass(frozen=True)
class CellStatus:
    """One cell now; `state` is one of FINAL, or `running`, or `waiting`."""

    labels: tuple[str, str, str]  # model, bits, method
    seed: int
    state: str
    records: int
    expected: int
    rounds: int
    accuracy: float | None
    seconds: float  # that its records took
    host: str
    changed: float  # time of the last change to its files

    @property
    def missing(self) -> int:
        """Number of records still to be computed."""
        return 0 if self.state in FINAL else self.expected - self.records


@dataclass(frozen=True)
class FolderStatus:
    """A results folder at one moment."""

    folder: Path
    cells: Sequence[CellStatus]
    holder: str  # process and host of the run that is writing; empty if there is none
    begun: float  # when that run locked the folder
    now: float
    workers: Sequence[Record] = ()  # of a run over Ray: node, device, work, since

    @property
    def over(self) -> bool:
        """Whether every cell is in a final state."""
        return all(cell.state in FINAL for cell in self.cells)


class StatusReader:
    """Reads the status of a results folder repeatedly; files that have not changed are read once."""

    def __init__(self, store: ResultStore) -> None:
        self.store = store
        self._files: dict[Path, tuple[tuple[int, int], Any]] = {}

    def read(self) -> FolderStatus:
        """The folder now."""
        holder, begun, busy = _writing(self.store.folder)
        manifest = self._cached(self.store.folder / MANIFEST, self.store.manifest)
        cells = [self._cell(cell, begun if holder else None) for cell in manifest["cells"]]
        return FolderStatus(self.store.folder, cells, holder, begun, time.time(), busy)

    def _cell(self, cell: Record, begun: float | None) -> CellStatus:
        key = cell["key"]
        path = self.store.records_folder / f"{key}.jsonl"
        records: list[Record] = self._cached(path, lambda: self.store.read(key)) or []
        ok = latest_results(records)
        changed = max(_changed(path), _changed(self.store.folder / "checkpoints" / f"{key}.checkpoint"))
        state = cell_status(records, cell["records_expected"])
        if state == "missing":
            # A cell that an earlier run left unfinished is waiting until this run writes to it.
            state = "running" if records and begun is not None and changed >= begun else "waiting"
        return CellStatus(
            labels=(cell["labels"]["model"], cell["bits"], cell["labels"]["method"]),
            seed=cell["seed"],
            state=state,
            records=len(ok),
            expected=cell["records_expected"],
            rounds=cell["rounds"],
            accuracy=mean_accuracy(ok),
            seconds=sum(record["seconds"] for record in ok if "repeats" not in record),
            host=self._host(key),
            changed=changed,
        )

    def _host(self, key: str) -> str:
        """The machine that was the last to start on a cell."""
        path = self.store.cells_folder / f"{key}.json"
        description: Record = self._cached(path, lambda: self.store.description(key)) or {}
        environments = list(description.get("environments", {}).values())
        return environments[-1]["host"].split(",")[0] if environments else ""

    def _cached(self, path: Path, read: Callable[[], Any]) -> Any:
        """The result of `read`, called again only if the file has changed; None if there is no file."""
        try:
            stat = path.stat()
        except FileNotFoundError:
            return None
        mark = (stat.st_mtime_ns, stat.st_size)
        if path not in self._files or self._files[path][0] != mark:
            self._files[path] = (mark, read())
        return self._files[path][1]


def _changed(path: Path) -> float:
    return path.stat().st_mtime if path.exists() else 0.0
