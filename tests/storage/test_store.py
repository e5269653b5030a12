"""The results folder: what survives, what is noticed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from tests.conftest import SMALL
from tests.storage.test_merge import result
from tta_bench import config, grid
from tta_bench.errors import UserError
from tta_bench.execution import run
from tta_bench.execution.messages import Delivery, RunPolicy
from tta_bench.execution.progress import RunProgress
from tta_bench.execution.recorder import ResultRecorder
from tta_bench.grid import Cell, row_of
from tta_bench.planning.sharing import resolve
from tta_bench.planning.tasks import Task
from tta_bench.storage.checkpoints import Checkpoint
from tta_bench.storage.manifest import benchmarks
from tta_bench.storage.record import cell_status
from tta_bench.storage.store import ResultStore

Write = Callable[..., Path]
STREAM = SMALL["stream"] | {"rounds": 3}


@pytest.fixture
def cell(write_yaml: Write) -> Cell:
    return grid.expand(config.load(write_yaml(methods=["source"], quantizers=["fp32"], stream=STREAM)))[0]


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    return ResultStore(tmp_path / "results", "small")


def record(cell: Cell, round: int = 1, **facts: Any) -> dict[str, Any]:
    return result(cell, 2 * round - 1, **facts)


def test_what_is_appended_is_read_back(cell: Cell, store: ResultStore) -> None:
    store.open([row_of(cell)]).release()
    store.append(cell.key, [record(cell, round=1), record(cell, round=2)])
    store.append(cell.key, [record(cell, round=3)])
    assert [r["round"] for r in store.read(cell.key)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("damage", "kept"),
    [
        (lambda b: b[:-5], 2),  # torn at the end
        (lambda b: b.replace(b'"round":2', b'"round":9'), 2),  # edited in the middle
        (lambda b: b + b"garbage\n", 3),
    ],
)
def test_a_damaged_record_is_noticed_and_set_aside(
    damage: Callable[[bytes], bytes], kept: int, cell: Cell, store: ResultStore
) -> None:
    store.open([row_of(cell)]).release()
    for round in (1, 2, 3):
        store.append(cell.key, [record(cell, round=round)])
    path = store.records_folder / f"{cell.key}.jsonl"
    path.write_bytes(damage(path.read_bytes()))
    assert len(store.read(cell.key)) == kept
    note = store.repair(cell)
    assert note is not None
    assert "set aside" in note
    assert list(store.records_folder.glob("*.damaged-*"))
    assert len(store.read(cell.key)) == kept
    assert store.repair(cell) is None


def test_a_second_run_is_told_who_holds_the_folder(cell: Cell, store: ResultStore) -> None:
    lock = store.open([row_of(cell)])
    with pytest.raises(UserError, match=f"in use by process {os.getpid()}"):
        store.open([row_of(cell)])
    lock.release()
    store.open([row_of(cell)]).release()


def test_states(cell: Cell) -> None:
    ok = [record(cell, round) for round in range(cell.records_expected)]
    assert cell_status(ok, cell.records_expected) == "done"
    assert cell_status(ok[1:], cell.records_expected) == "missing"
    assert cell_status([*ok[1:], ok[1]], cell.records_expected) == "missing", "twice is not two"
    assert cell_status([record(cell) | {"status": "failed"}], 4) == "failed"
    assert cell_status([record(cell) | {"status": "unsupported"}], 4) == "unsupported"
    assert cell_status([], 4) == "missing"


def test_the_last_run_comes_first(cell: Cell, tmp_path: Path) -> None:
    for age, name in enumerate(("new", "old")):
        ResultStore(tmp_path, name).open([row_of(cell)]).release()
        os.utime(tmp_path / name / "benchmark.json", (1000 - age, 1000 - age))
    assert benchmarks(tmp_path) == ["new", "old"]


def test_a_folder_that_cannot_be_written_is_named(cell: Cell, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot be written.*another --results"):
        ResultStore(tmp_path / "file", "small").open([row_of(cell)])


class Killed(BaseException):
    """The process is gone."""


def delivered(cell: Cell, place: int) -> Delivery:
    domain = cell.domains[place % len(cell.domains)]
    found = record(cell, place // len(cell.domains) + 1, corruption=domain[0], severity=domain[1])
    return Delivery(cell.key, [found], Checkpoint(cell.key, place + 1, 0, b"state"))


@pytest.mark.parametrize("dies", ["append", "save"])
def test_a_kill_between_record_and_checkpoint_loses_neither(
    dies: str, write_yaml: Write, store: ResultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before: the checkpoint was written after the record, and a kill between them dropped the record."""
    (cell,) = grid.expand(config.load(write_yaml(methods=["tent"], quantizers=["fp32"])))
    store.open([row_of(cell)]).release()
    progress = RunProgress(quiet=True)
    with progress.running([cell], 0):
        writer = ResultRecorder(store, progress, [])
        writer.started(Task((resolve(cell),)))
        writer.delivered(delivered(cell, 0))
        with monkeypatch.context() as patched:
            owner = store if dies == "append" else writer.checkpoints
            patched.setattr(owner, dies, MagicMock(side_effect=Killed))
            with pytest.raises(Killed):
                writer.delivered(delivered(cell, 1))
        (start,) = ResultRecorder(store, progress, []).started(Task((resolve(cell),)))
    done = 2 if dies == "append" else 1
    assert start.finished == set(range(done))
    assert start.checkpoint is not None
    assert start.checkpoint.position == done
    assert len(store.read(cell.key)) == done


def test_a_lost_description_is_made_again_and_nothing_else(write_yaml: Write, tmp_path: Path) -> None:
    """Before: a finished cell whose first line was damaged had no memory, versions or device for good."""
    file = write_yaml(methods=["source", "tent"], quantizers=["fp32"])
    cells = grid.expand(config.load(file))

    def go() -> run.Summary:
        runner = run.make_runner("local", 1, RunPolicy())
        return run.run("small", cells, runner, tmp_path, "missing", RunProgress(quiet=True))

    go()
    store = ResultStore(tmp_path, "small")

    def held() -> list[object]:
        # What the process measured while it computed a cell cannot be had again without computing it.
        found = [(store.description(cell.key) or {}, store.read(cell.key)) for cell in cells]
        measured = {"model_resident_bytes", "measured_bytes"}
        return [
            (
                {name: value for name, value in facts.items() if name not in measured},
                sorted(map(str, records)),
            )
            for facts, records in found
        ]

    before = held()
    for cell in cells:
        path = store.cells_folder / f"{cell.key}.json"
        path.write_bytes(path.read_bytes().replace(b'"memory_bytes":', b'"memory_bites":'))
    assert all(store.description(cell.key) is None for cell in cells)
    assert go().states == {"done": 2}
    assert held() == before
    assert go().ran == 0


def test_a_folder_of_another_format_is_refused(cell: Cell, store: ResultStore) -> None:
    store.folder.mkdir(parents=True)
    (store.folder / "benchmark.json").write_text('{"version": "0.1.0", "cells": []}')
    for attempt in (store.manifest, lambda: store.open([row_of(cell)])):
        with pytest.raises(UserError, match=r"the folder has format 1.*Choose another --results folder"):
            attempt()
    (store.folder / "benchmark.json").write_text("torn")
    store.open([row_of(cell)]).release()
    assert store.manifest()["cells"]
