"""Checkpoints on disk: written in one piece, verified when read, and never left behind."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.storage.test_merge import result
from tta_bench import config, grid
from tta_bench.errors import UserError
from tta_bench.grid import Cell
from tta_bench.storage import lock
from tta_bench.storage.checkpoints import Checkpoint, Checkpoints, DamagedCheckpoint

Write = Callable[..., Path]
OLD, NEW = Checkpoint("key", 3, 2, b"old\nstate"), Checkpoint("key", 4, 0, b"new\nstate")


@pytest.fixture
def cell(write_yaml: Write) -> Cell:
    return grid.expand(config.load(write_yaml(methods=["tent"], quantizers=["fp32"])))[0]


def names(kept: Checkpoints) -> list[str]:
    return sorted(path.name for path in kept.folder.iterdir())


def test_what_is_saved_is_loaded(tmp_path: Path, cell: Cell) -> None:
    kept, saved = Checkpoints(tmp_path), Checkpoint(cell.key, 2, 1, b"state")
    assert kept.load(cell.key) is None
    kept.save(saved, [result(cell, 0), result(cell, 1)])
    kept.save(OLD)
    assert kept.load(cell.key) == (saved, [result(cell, 0), result(cell, 1)])
    assert kept.load("key") == (OLD, [])
    kept.save(NEW)
    assert kept.load("key") == (NEW, [])
    assert names(kept) == sorted([f"{cell.key}.checkpoint", "key.checkpoint"])


def test_the_last_one_counts_until_the_next_is_complete(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    kept.save(OLD)
    os.replace(kept.folder / "key.checkpoint", kept.folder / "key.last")  # and the process dies
    assert kept.load("key") == (OLD, [])
    kept.save(NEW)
    assert names(kept) == ["key.checkpoint"]
    kept.save(OLD)
    assert kept.load("key") == (OLD, [])


def test_a_removed_checkpoint_leaves_nothing(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    kept.remove("key")
    kept.save(OLD)
    (kept.folder / "key.last").write_bytes(b"")
    kept.remove("key")
    assert names(kept) == []


@pytest.mark.parametrize("place", [0, 63, 64, 70, -1])
def test_any_damage_is_noticed_and_set_aside(place: int, tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    kept.save(OLD)
    path = kept.folder / "key.checkpoint"
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    told = r"^key.checkpoint: a damaged checkpoint was set aside as key.damaged-"
    with pytest.raises(DamagedCheckpoint, match=told):
        kept.load("key")
    (aside,) = kept.folder.iterdir()
    assert aside.read_bytes() == bytes(content)
    assert kept.load("key") is None


def test_a_checkpoint_or_a_record_of_another_cell_is_damage(tmp_path: Path, cell: Cell) -> None:
    kept = Checkpoints(tmp_path)
    kept.save(Checkpoint("other", 3, 0, b""))
    os.replace(kept.folder / "other.checkpoint", kept.folder / "key.checkpoint")
    with pytest.raises(DamagedCheckpoint):
        kept.load("key")
    kept.save(OLD, [result(cell, 0)])
    with pytest.raises(DamagedCheckpoint):
        kept.load("key")


def test_the_disk_is_waited_for_if_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    Checkpoints(tmp_path).save(OLD, sync=False)
    assert len(synced) == 0
    Checkpoints(tmp_path).save(OLD)
    assert len(synced) == 1


def test_a_checkpoint_is_a_digest_a_line_and_a_state(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    kept.save(OLD)
    content = (kept.folder / "key.checkpoint").read_bytes()
    line, _, state = content[64:].partition(b"\n")
    assert json.loads(line) == {"key": "key", "place": 3, "batch": 2, "unlogged": []}
    assert state == OLD.content


def test_a_key_is_never_a_path(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a cell's key"):
        Checkpoints(tmp_path).load("../key")


def test_where_there_are_no_locks_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "fcntl", None)
    with pytest.raises(UserError, match="needs Linux or macOS"):
        lock.Lock(tmp_path / "lock")
    assert not list(tmp_path.iterdir())
