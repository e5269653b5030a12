"""The results folder: what survives, what is noticed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tta_bench import config, grid
from tta_bench.errors import UserError
from tta_bench.grid import Cell
from tta_bench.store import ResultStore, benchmarks, cell_status

Write = Callable[..., Path]


@pytest.fixture
def cell(write_yaml: Write) -> Cell:
    return grid.expand(config.load(write_yaml(methods=["source"], quantizers=["fp32"])))[0]


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    return ResultStore(tmp_path / "results", "small")


def record(cell: Cell, round: int = 1, **facts: Any) -> dict[str, Any]:
    where = {"round": round, "corruption": "fog", "severity": 5}
    return {"key": cell.key, "status": "ok", "code": cell.code, **where, **facts}


def test_what_is_appended_is_read_back(cell: Cell, store: ResultStore) -> None:
    store.open([cell]).release()
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
    store.open([cell]).release()
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
    lock = store.open([cell])
    with pytest.raises(UserError, match=f"in use by process {os.getpid()}"):
        store.open([cell])
    lock.release()
    store.open([cell]).release()


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
        ResultStore(tmp_path, name).open([cell]).release()
        os.utime(tmp_path / name / "benchmark.json", (1000 - age, 1000 - age))
    assert benchmarks(tmp_path) == ["new", "old"]


def test_a_folder_that_cannot_be_written_is_named(cell: Cell, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot be written.*another --results"):
        ResultStore(tmp_path / "file", "small").open([cell])
