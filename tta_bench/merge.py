"""`tta-bench merge`: results of several machines in one folder; contradictions are refused by name.

Where one machine got further than another, both contribute, and what each says of itself is kept beside its
records. `merges.jsonl` in the folder tells what was merged when.
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
from tta_bench.checkpoint import Checkpoints, Damaged
from tta_bench.describe import Description
from tta_bench.errors import UserError
from tta_bench.exchange import Checkpoint
from tta_bench.plain_files import plain_file
from tta_bench.result_format import LEDGER
from tta_bench.store import (
    MANIFEST,
    Lock,
    Record,
    ResultStore,
    benchmarks,
    cell_status,
    writing,
)
from tta_bench.union import unite, unite_ledgers

LOG = "merges.jsonl"
NAMED = 20  # conflicts that are spelt out
AXES = ("model", "quantizer", "method")  # in the order of a label's places


@dataclass
class Merged:
    """One benchmark of all folders, before any of it is written."""

    store: ResultStore
    cells: list[Record]
    records: dict[str, list[Record]] = field(default_factory=dict)  # by key
    descriptions: dict[str, Record] = field(default_factory=dict)
    checkpoints: dict[str, tuple[Checkpoint, list[Record]]] = field(default_factory=dict)
    given: Counter[Path] = field(default_factory=Counter)  # records of domains, by folder
    notes: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)

    def state(self, cell: Record) -> str:
        """How a cell stands, all folders together."""
        return cell_status(self.records[cell["key"]], cell["records_expected"])


def merge(sources: Sequence[Path], into: Path, name: str | None = None) -> Description:
    """Join results folders into one, which may have results of its own; say what came from where."""
    folders = [folder for folder in dict.fromkeys(sources) if folder.resolve() != into.resolve()]
    names = list(dict.fromkeys(each for folder in folders for each in _names(folder)))
    if name is not None and name not in names:
        raise UserError(f'merge: no benchmark "{name}". There: {", ".join(names)}.')
    with ExitStack() as held:
        found = []
        for each in names if name is None else [name]:
            target = ResultStore(into, each)
            if target.folder.is_dir():  # else there is nothing yet that a run could be writing to
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


def _joined(target: ResultStore, stores: Sequence[ResultStore]) -> Merged:
    """Everything that the stores have of one benchmark."""
    merged = Merged(target, _cells([store.manifest()["cells"] for store in stores]))
    named = [cell["key"] for cell in merged.cells]
    there = {path.stem for store in stores for path in store.records_folder.glob("*.jsonl")}
    for key in [*named, *sorted(there.difference(named))]:  # results of cells that were left out since stay
        descriptions = [(s.folder, found) for s in stores if (found := s.description(key)) is not None]
        parts = [(store.folder, store.read(key)) for store in stores]
        union = unite_ledgers(key, parts) if key.startswith(LEDGER) else unite(key, parts, descriptions)
        merged.records[key] = union.records
        if union.description is not None:
            merged.descriptions[key] = union.description
        merged.given += union.given
        merged.notes += union.notes
        merged.conflicts += union.conflicts
    merged.notes += [note for store in stores for note in store.damage.values()]
    for cell in merged.cells:
        if merged.state(cell) != "done":
            _furthest(cell["key"], stores, merged)
    return merged


def _cells(manifests: Sequence[Sequence[Record]]) -> list[Record]:
    """The cells of all manifests, each once; their places in tables follow the first that names them."""
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


def _furthest(key: str, stores: Sequence[ResultStore], merged: Merged) -> None:
    """Of a cell that is still under way, the checkpoint that is furthest on."""
    for store in stores:
        try:
            found = Checkpoints(store.folder).load(key)
        except (
            Damaged,
            OSError,
        ) as damage:  # one that cannot be set aside, where we may only read, is left out
            merged.notes.append(f"{store.folder}: {damage}.")
            continue
        best = merged.checkpoints.get(key)
        if found and (best is None or _position(found[0]) > _position(best[0])):
            merged.checkpoints[key] = found


def _position(checkpoint: Checkpoint) -> tuple[int, int]:
    return checkpoint.place, checkpoint.batch


# -- writing and telling -----------------------------------------------------------------------------


def _refuse(conflicts: Sequence[str]) -> None:
    if not conflicts:
        return
    more = [f"… and {len(conflicts) - NAMED} more."] if len(conflicts) > NAMED else []
    remedy = (
        "Nothing was merged: a cell cannot have two results. Delete the records/KEY.jsonl that is wrong, or "
        "compute the cell again (`tta-bench run FILE --overwrite all --only …`), then merge again."
    )
    raise UserError("\n".join([*conflicts[:NAMED], *more, remedy]))


def _write(merged: Merged) -> None:
    store, checkpoints = merged.store, Checkpoints(merged.store.folder)
    told = plain_file(store.folder, LOG)
    with writing(store.folder, "What was to be merged is untouched; choose another folder with --into."):
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
        entry = {"time": time.time(), "version": __version__, "records": _given(merged)}
        with open(told, "a") as log:
            log.write(json.dumps(entry) + "\n")


def _describe(found: Sequence[Merged]) -> Description:
    lines, data = [], []
    for merged in found:
        states = Counter(merged.state(cell) for cell in merged.cells)
        counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        lines.append(f"{merged.store.folder}: {len(merged.cells)} cells, {counts}")
        lines += [f"  {count} records from {folder}" for folder, count in _given(merged).items()]
        lines += merged.notes
        facts = {"folder": str(merged.store.folder), "states": states, "records": _given(merged)}
        data.append(facts | {"notes": merged.notes})
    return Description("\n".join(lines), data)


def _given(merged: Merged) -> dict[str, int]:
    return {str(folder): count for folder, count in merged.given.items()}
