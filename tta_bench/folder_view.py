"""A results folder while a run writes to it: how far each cell is, and how long the rest will take."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tta_bench.store import MANIFEST, Record, ResultStore, cell_status

OVER = ("done", "unsupported", "failed")


@dataclass(frozen=True)
class CellView:
    """One cell as it stands; `state` is one of OVER, or `running`, or `waiting`."""

    labels: tuple[str, str, str]  # model, bits, method
    seed: int
    state: str
    records: int
    expected: int
    rounds: int
    accuracy: float | None
    seconds: float  # that its records took
    host: str
    changed: float  # when its files last were

    @property
    def missing(self) -> int:
        """Records that it still owes."""
        return 0 if self.state in OVER else self.expected - self.records


@dataclass(frozen=True)
class View:
    """A results folder at one moment."""

    folder: Path
    cells: Sequence[CellView]
    holder: str  # the run that is writing, as it calls itself; empty if none is
    begun: float  # when that run took the folder
    now: float

    @property
    def over(self) -> bool:
        """Whether nothing is left to wait for."""
        return all(cell.state in OVER for cell in self.cells)


class Watcher:
    """Looks at a results folder again and again; reads again only what has changed."""

    def __init__(self, store: ResultStore) -> None:
        self.store = store
        self._files: dict[Path, tuple[tuple[int, int], Any]] = {}

    def look(self) -> View:
        """The folder now."""
        lock = self.store.folder / "lock"
        holder = lock.read_text().strip() if lock.is_file() else ""
        begun = _changed(lock)
        manifest = self._cached(self.store.folder / MANIFEST, self.store.manifest)
        cells = [self._cell(cell, begun if holder else None) for cell in manifest["cells"]]
        return View(self.store.folder, cells, holder, begun, time.time())

    def _cell(self, cell: Record, begun: float | None) -> CellView:
        key = cell["key"]
        path = self.store.records_folder / f"{key}.jsonl"
        records: list[Record] = self._cached(path, lambda: self.store.read(key)) or []
        ok = list({_place(r): r for r in records if r.get("status") == "ok"}.values())
        changed = max(_changed(path), _changed(self.store.folder / "checkpoints" / f"{key}.checkpoint"))
        state = cell_status(records, cell["records_expected"])
        if state == "missing":
            # What earlier runs left unfinished is waiting until this one touches it.
            state = "running" if records and begun is not None and changed >= begun else "waiting"
        return CellView(
            labels=(cell["labels"]["model"], cell["bits"], cell["labels"]["method"]),
            seed=cell["seed"],
            state=state,
            records=len(ok),
            expected=cell["records_expected"],
            rounds=cell["rounds"],
            accuracy=mean_accuracy(ok),
            seconds=sum(record["seconds"] for record in ok if "repeats" not in record),
            host=_host(self._description(key)),
            changed=changed,
        )

    def _description(self, key: str) -> Record:
        path = self.store.cells_folder / f"{key}.json"
        return self._cached(path, lambda: self.store.description(key)) or {}

    def _cached(self, path: Path, read: Callable[[], Any]) -> Any:
        """What a file holds; None if it is not there."""
        try:
            stat = path.stat()
        except FileNotFoundError:
            return None
        mark = (stat.st_mtime_ns, stat.st_size)
        if path not in self._files or self._files[path][0] != mark:
            self._files[path] = (mark, read())
        return self._files[path][1]


def mean_accuracy(records: Sequence[Record]) -> float | None:
    """The mean accuracy (%) over rounds and domains, as tables average it: clean images only if alone."""
    corrupted = [record for record in records if record["corruption"] != "clean"] or records
    values = [100 * record["correct"] / record["images"] for record in corrupted]
    return sum(values) / len(values) if values else None


def _host(description: Record) -> str:
    """The machine that has last joined in computing a cell."""
    environments = list(description.get("environments", {}).values())
    return environments[-1]["host"].split(",")[0] if environments else ""


def _changed(path: Path) -> float:
    return path.stat().st_mtime if path.exists() else 0.0


def _place(record: Record) -> tuple[Any, ...]:
    return (record["round"], record["corruption"], record["severity"])


# -- time left ---------------------------------------------------------------------------------------


def seconds_left(first: View, last: View) -> float | None:
    """How long the rest will take, at the pace seen since `first`; None before there is any."""
    pace = _pace(first, last)
    return None if pace is None else sum(_work(last)) / pace


def _pace(first: View, last: View) -> float | None:
    """Seconds of work that are done in a second: what the workers of all machines do together."""
    spent = sum(cell.seconds for cell in last.cells) - sum(cell.seconds for cell in first.cells)
    elapsed = last.now - first.now
    if spent <= 0:  # nothing has come since; take what this run has touched since it began
        spent = sum(cell.seconds for cell in last.cells if cell.changed >= last.begun)
        elapsed = last.now - last.begun
    return spent / elapsed if last.holder and spent > 0 and elapsed > 0 else None


def _work(view: View) -> list[float]:
    """Seconds of work that each cell still is: records at its own cost, or at that of its like."""
    costs: defaultdict[tuple[str, ...], list[float]] = defaultdict(list)
    for cell in view.cells:
        if cell.records:
            for like in _likes(cell):
                costs[like].append(cell.seconds / cell.records)
    means = {like: sum(found) / len(found) for like, found in costs.items()}
    work = []
    for cell in view.cells:
        own = cell.seconds / cell.records if cell.records else None
        cost = own if own is not None else next((means[k] for k in _likes(cell) if k in means), 0.0)
        work.append(cell.missing * cost)
    return work


def _likes(cell: CellView) -> list[tuple[str, ...]]:
    """What other cells may have in common with this one, most first."""
    model, _, method = cell.labels
    return [cell.labels, (model, method), (method,), ()]
