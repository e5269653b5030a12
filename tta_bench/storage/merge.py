"""`tta-bench merge`: join the results of several machines in one folder; refuse contradictions.

Each folder contributes the records that the others lack, and the environment of each stays with its records.
`merges.jsonl` in the folder lists what was merged, and when.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tta_bench import __version__
from tta_bench.description import Description
from tta_bench.errors import UserError
from tta_bench.files import plain_file, write_errors
from tta_bench.storage.cell_merge import merge_cell, merge_ledgers
from tta_bench.storage.checkpoints import Checkpoint, Checkpoints, DamagedCheckpoint
from tta_bench.storage.format import LEDGER
from tta_bench.storage.lock import Lock
from tta_bench.storage.manifest import MANIFEST, benchmarks
from tta_bench.storage.record import Record, cell_status
from tta_bench.storage.store import ResultStore

LOG = "merges.jsonl"
MOST_CONFLICTS = 20  # listed in the message
AXES = ("model", "quantizer", "method")  # in the order of `labels.order`


@dataclass
class MergedBenchmark:
    """One benchmark from all folders, before any of it is written."""

    store: ResultStore
    cells: list[Record]
    records: dict[str, list[Record]] = field(default_factory=dict)  # by key
    descriptions: dict[str, Record] = field(default_factory=dict)
    checkpoints: dict[str, tuple[Checkpoint, list[Record]]] = field(default_factory=dict)
    given: Counter[str] = field(default_factory=Counter)  # number of records taken, by folder
    notes: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)

    def state(self, cell: Record) -> str:
        """The state of a cell, from the records of all folders."""
        return cell_status(self.records[cell["key"]], cell["records_expected"])


def merge(sources: Sequence[Path], into: Path, name: str | None = None) -> Description:
    """Join results folders into one, which may have results already; return what came from where."""
    folders = [folder for folder in dict.fromkeys(sources) if folder.resolve() != into.resolve()]
    names = list(dict.fromkeys(each for folder in folders for each in _names(folder)))
    if name is not None and name not in names:
        raise UserError(f'merge: no benchmark "{name}". There: {", ".join(names)}.')
    with ExitStack() as held:
        found = []
        for each in names if name is None else [name]:
            target = ResultStore(into, each)
            if target.folder.is_dir():  # otherwise no run can be writing to it
                held.callback(Lock(target.folder / "lock").release)
            stores = [ResultStore(f, each) for f in (into, *folders) if os.path.lexists(f / each / MANIFEST)]
            found.append(_joined(target, stores))
        _refuse([text for merged in found for text in merged.conflicts])
        for merged in found:
            _write(merged)
    return _describe(found)


def _names(folder: Path) -> list[str]:
    found = benchmarks(folder)
    if not found:
        raise UserError(f"{folder}: no results here. Give folders that `tta-bench run --results` wrote.")
    return found


# -- reading -----------------------------------------------------------------------------------------


def _joined(target: ResultStore, stores: Sequence[ResultStore]) -> MergedBenchmark:
    """All results of one benchmark in several folders."""
    merged = MergedBenchmark(target, _cells([store.manifest()["cells"] for store in stores]))
    named = [cell["key"] for cell in merged.cells]
    there = {path.stem for store in stores for path in store.records_folder.glob("*.jsonl")}
    for key in [*named, *sorted(there.difference(named))]:  # cells no longer in the manifest keep theirs
        descriptions = [(s.folder, found) for s in stores if (found := s.description(key)) is not None]
        parts = [(store.folder, store.read(key)) for store in stores]
        cell = merge_ledgers(key, parts) if key.startswith(LEDGER) else merge_cell(key, parts, descriptions)
        merged.records[key] = cell.records
        if cell.description is not None:
            merged.descriptions[key] = cell.description
        merged.given += cell.given
        merged.notes += cell.notes
        merged.conflicts += cell.conflicts
    merged.notes += [note for store in stores for note in store.damage.values()]
    for row in merged.cells:
        if merged.state(row) != "done":
            _furthest(row["key"], stores, merged)
    return merged


def _cells(manifests: Sequence[Sequence[Record]]) -> list[Record]:
    """The cells of all manifests, each once; rows are ordered as in the first manifest that has them."""
    cells: dict[str, Record] = {}
    places: list[dict[str, tuple[int, int]]] = [{} for _ in AXES]
    for number, manifest in enumerate(manifests):
        for cell in manifest:
            cells.setdefault(cell["key"], cell)
            for known, axis, place in zip(places, AXES, cell["labels"]["order"], strict=True):
                known.setdefault(cell["labels"][axis], (number, place))
    ranks = [{label: i for i, label in enumerate(sorted(known, key=known.__getitem__))} for known in places]

    def placed(cell: Record) -> Record:
        labels = cell["labels"]
        order = [rank[labels[axis]] for rank, axis in zip(ranks, AXES, strict=True)]
        return cell | {"labels": labels | {"order": order}}

    return sorted(map(placed, cells.values()), key=lambda cell: cell["labels"]["order"])


def _furthest(key: str, stores: Sequence[ResultStore], merged: MergedBenchmark) -> None:
    """Keep the most advanced checkpoint of an unfinished cell."""
    for store in stores:
        try:
            found = Checkpoints(store.folder).load(key)
        except (DamagedCheckpoint, OSError) as damage:  # OSError: it cannot be renamed in a read-only folder
            merged.notes.append(f"{store.folder}: {damage}.")
            continue
        best = merged.checkpoints.get(key)
        if found and (best is None or _position(found[0]) > _position(best[0])):
            merged.checkpoints[key] = found


def _position(checkpoint: Checkpoint) -> tuple[int, int]:
    return checkpoint.position, checkpoint.batch


# -- writing and reporting ---------------------------------------------------------------------------


def _refuse(conflicts: Sequence[str]) -> None:
    if not conflicts:
        return
    more = [f"… and {len(conflicts) - MOST_CONFLICTS} more."] if len(conflicts) > MOST_CONFLICTS else []
    remedy = (
        "Nothing was merged: a cell cannot have two results. Delete the wrong records/KEY.jsonl, or "
        "compute the cell again (`tta-bench run FILE --overwrite all --only …`), then merge again."
    )
    raise UserError("\n".join([*conflicts[:MOST_CONFLICTS], *more, remedy]))


def _write(merged: MergedBenchmark) -> None:
    store, checkpoints = merged.store, Checkpoints(merged.store.folder)
    log_path = plain_file(store.folder, LOG)
    with write_errors(store.folder, "The merged folders are unchanged; choose another one with --into."):
        store.make_folders()
        for key, records in merged.records.items():
            if key in merged.descriptions:
                store.describe(key, merged.descriptions[key])
            if records != store.read(key):
                store.keep(key, records)
            if key in merged.checkpoints:
                checkpoints.save(*merged.checkpoints[key])
            else:
                checkpoints.remove(key)
        store.write_manifest(merged.cells)
        entry = {"time": time.time(), "version": __version__, "records": merged.given}
        with open(log_path, "a") as log:
            log.write(json.dumps(entry) + "\n")


def _describe(found: Sequence[MergedBenchmark]) -> Description:
    lines, data = [], []
    for merged in found:
        states = Counter(merged.state(cell) for cell in merged.cells)
        counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        lines.append(f"{merged.store.folder}: {len(merged.cells)} cells, {counts}")
        lines += [f"  {count} records from {folder}" for folder, count in merged.given.items()]
        lines += merged.notes
        facts = {"folder": str(merged.store.folder), "states": states, "records": merged.given}
        data.append(facts | {"notes": merged.notes})
    return Description("\n".join(lines), data)
