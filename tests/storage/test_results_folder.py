"""Every promise of the results folder, one by one, without running a benchmark."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from tests.storage.test_merge import result
from tta_bench import __version__, config, grid
from tta_bench.errors import UserError
from tta_bench.files import replacing, write_atomically, write_errors
from tta_bench.grid import Cell, row_of
from tta_bench.storage.record import encode
from tta_bench.storage.store import ResultStore, disk_errors, merged_descriptions

Write = Callable[..., Path]


@pytest.fixture
def cell(write_yaml: Write) -> Cell:
    return grid.expand(config.load(write_yaml(methods=["tent"], quantizers=["fp32"])))[0]


@pytest.fixture
def store(tmp_path: Path, cell: Cell) -> ResultStore:
    """A folder as a run that has ended leaves it, without records."""
    return opened(tmp_path, "small", cell)


def opened(results: Path, name: str, cell: Cell) -> ResultStore:
    store = ResultStore(results, name)
    store.open([row_of(cell)]).release()
    return store


def complete(cell: Cell) -> list[dict[str, Any]]:
    """The records of two rounds of two domains."""
    return [result(cell, place) for place in range(4)]


def places(store: ResultStore, cell: Cell) -> list[int]:
    """Which of its records a cell has."""
    found = [(record["round"], record["corruption"]) for record in store.read(cell.key)]
    return [2 * (round - 1) + [name for name, _ in cell.domains].index(name) for round, name in found]


ENVIRONMENT = {"versions": {"torch": "2.9", "timm": "1.0"}, "device": "cpu", "cpu": "x86", "host": "here"}


# -- the manifest -----------------------------------------------------------------------------------


def test_the_manifest_has_the_cells_with_their_facts(store: ResultStore, cell: Cell) -> None:
    found = ResultStore(store.folder.parent, "small").manifest()
    assert (found.keys(), found["format"], found["version"]) == (
        {"format", "version", "cells"},
        3,
        __version__,
    )
    assert json.dumps(found["cells"], sort_keys=True) == json.dumps([row_of(cell)], sort_keys=True)
    facts = {"code": cell.code, "bits": "FP32", "records_expected": 4, "variant": "", "backprop": True}
    assert found["cells"][0].items() >= facts.items()
    assert found["cells"][0]["key"] == cell.key


def test_the_variant_of_a_method_is_in_the_manifest(write_yaml: Write) -> None:
    file = write_yaml(methods=[{"use": "bn-adapt", "variant": "cumulative"}], quantizers=["fp32"])
    found = row_of(grid.expand(config.load(file))[0])
    assert (found["variant"], found["backprop"]) == ("cumulative", False)


def test_a_run_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"benchmark\.json: no such run. Start one with `tta-bench run`"):
        ResultStore(tmp_path, "none").manifest()


def test_a_damaged_manifest_is_named_and_rewritten_by_the_next_run(store: ResultStore, cell: Cell) -> None:
    path = store.folder / "benchmark.json"
    path.write_text("{")
    with pytest.raises(UserError, match=r"benchmark\.json: Invalid JSON.*\nRun the benchmark again"):
        store.manifest()
    store.open([row_of(cell)]).release()
    assert store.manifest()["cells"]


@pytest.mark.parametrize(("content", "format"), [({"cells": []}, "1"), ({"format": 4}, "4")])
def test_a_folder_of_another_format_is_neither_read_nor_written(
    content: Any, format: str, store: ResultStore, cell: Cell
) -> None:
    path = store.folder / "benchmark.json"
    before = path.read_text()
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=f"the folder has format {format}, and this version"):
        store.manifest()
    with pytest.raises(UserError, match=f"the folder has format {format}, and this version") as refused:
        store.open([row_of(cell)])
    assert json.loads(path.read_text()) == content
    path.write_text(before)
    store.open([row_of(cell)]).release()  # whoever was refused holds no lock
    assert refused.tb is not None, "nor would it if its error were still shown"


def test_a_manifest_of_this_format_with_other_content_is_damaged(store: ResultStore, cell: Cell) -> None:
    path = store.folder / "benchmark.json"
    path.write_text("[]")
    with pytest.raises(UserError, match=r"benchmark\.json: Input should be an object"):
        store.manifest()
    store.open([row_of(cell)]).release()
    assert store.manifest()["cells"]


def test_what_a_killed_run_left_half_written_is_removed(store: ResultStore, cell: Cell) -> None:
    torn = store.records_folder / "x.123.partial"
    torn.write_text("half")
    store.open([row_of(cell)]).release()
    assert not torn.exists()


# -- records ----------------------------------------------------------------------------------------


def test_a_cell_without_records_has_none(store: ResultStore, cell: Cell) -> None:
    assert store.read(cell.key) == []
    assert store.status(cell) == "missing"
    assert store.repair(cell) is None
    assert store.damage == {}


def test_what_is_kept_replaces_the_rest(store: ResultStore, cell: Cell) -> None:
    store.append(cell.key, complete(cell))
    store.keep(cell.key, complete(cell)[1:3])
    assert store.read(cell.key) == complete(cell)[1:3]
    store.keep(cell.key, [])
    assert store.read(cell.key) == []
    assert not list(store.records_folder.iterdir())
    store.keep(cell.key, [])


def test_records_of_other_code_make_a_cell_stale(store: ResultStore, cell: Cell) -> None:
    store.append(cell.key, complete(cell))
    assert store.status(cell) == "done"
    store.append(cell.key, [result(cell, 0, code="other")])
    assert store.status(cell) == "stale"


def test_a_line_of_another_cell_or_without_its_end_is_damage(store: ResultStore, cell: Cell) -> None:
    one, two, three, four = complete(cell)
    store.append(cell.key, [one, two | {"key": "another"}, three])
    assert places(store, cell) == [0, 2]
    path = store.records_folder / f"{cell.key}.jsonl"
    assert "1 of 3 lines are torn or damaged" in store.damage[path]
    path.write_bytes(path.read_bytes()[:-1])
    assert places(store, cell) == [0]
    assert "2 of 3 lines are torn or damaged" in store.damage[path]
    damaged = path.read_bytes()
    said = store.repair(cell)
    assert said is not None
    (aside,) = store.records_folder.glob("*.damaged-*")
    assert aside.read_bytes() == damaged
    assert said.startswith(f"{cell.key}.jsonl: a damaged record")
    store.append(cell.key, [four])
    assert places(store, cell) == [0, 3]
    assert not store.damage


def test_a_record_that_is_no_record_is_damage(store: ResultStore, cell: Cell) -> None:
    first, second = complete(cell)[:2]
    store.append(cell.key, [{k: v for k, v in first.items() if k != "correct"}, second])
    assert places(store, cell) == [1]


@pytest.mark.parametrize("facts", [{"round": 3}, {"severity": 4}, {"corruption": "snow"}])
@pytest.mark.parametrize("again", [False, True])
def test_a_record_of_no_round_or_domain_of_the_cell_is_damage(
    facts: dict[str, Any], again: bool, store: ResultStore, cell: Cell
) -> None:
    store.append(cell.key, [result(cell, 3, **facts), result(cell, 3)])
    if again:
        store = ResultStore(store.folder.parent, "small")
        assert len(store.read(cell.key)) == 2, "nothing is known of the cell"
        store.manifest()
    assert places(store, cell) == [3]


def test_what_a_cell_as_a_whole_ends_with_is_kept(store: ResultStore, cell: Cell) -> None:
    ending = {"key": cell.key, "status": "failed", "code": cell.code, "reason": "why"}
    store.append(cell.key, [ending])
    assert store.read(cell.key) == [ending]
    assert store.status(cell) == "failed"


def test_numbers_that_json_does_not_have_are_refused(store: ResultStore, cell: Cell) -> None:
    with pytest.raises(ValueError, match="JSON"):
        store.append(cell.key, [result(cell, 0, ece=float("nan"))])
    assert store.read(cell.key) == []


def test_lines_are_plain_text_with_a_checksum() -> None:
    text = '{"a":"ü","b":[1,2]}'.encode()
    assert encode({"a": "ü", "b": [1, 2]}) == text + f"\t{zlib.crc32(text):08x}\n".encode()
    assert encode({"a": "\udc80"}).startswith(b'{"a":"?"}\t'), "a part of a file name that is no text"


@pytest.mark.parametrize("name", ["../other", "", ".", "a/b", "-rf", "a\nb"])
def test_names_are_never_paths(name: str, store: ResultStore) -> None:
    with pytest.raises(UserError, match="is not a benchmark's name"):
        ResultStore(store.folder, name)
    for use in (store.read, store.description, store.forget):
        with pytest.raises(UserError, match="is not a cell's key"):
            use(name)


# -- descriptions -----------------------------------------------------------------------------------


def test_descriptions_are_added_up(store: ResultStore, cell: Cell) -> None:
    assert store.description(cell.key) is None
    store.describe(cell.key, {"memory_bytes": 5, "data_note": "old", "environments": {"a": ENVIRONMENT}})
    store.describe(cell.key, {"memory_bytes": None, "data_note": "new", "environments": {"b": ENVIRONMENT}})
    expected = {"memory_bytes": 5, "data_note": "new", "environments": {"a": ENVIRONMENT, "b": ENVIRONMENT}}
    assert store.description(cell.key) == {"key": cell.key} | expected
    assert store.damage == {}


def test_a_description_that_says_nothing_new_is_not_written(store: ResultStore, cell: Cell) -> None:
    store.describe(cell.key, {"memory_bytes": 5})
    (path,) = store.cells_folder.iterdir()
    before = path.stat().st_ino
    store.describe(cell.key, {"memory_bytes": 5})
    assert path.stat().st_ino == before
    store.describe(cell.key, {"memory_bytes": 6})
    assert path.stat().st_ino != before


def test_a_damaged_description_is_unknown(store: ResultStore, cell: Cell) -> None:
    store.describe(cell.key, {"memory_bytes": 5})
    (path,) = store.cells_folder.iterdir()
    path.write_bytes(path.read_bytes().replace(b":5", b":6"))
    assert store.description(cell.key) is None
    assert "is damaged and was left out" in store.damage[path]


def test_a_cell_that_is_forgotten_leaves_nothing(store: ResultStore, cell: Cell) -> None:
    store.forget(cell.key)
    store.append(cell.key, complete(cell))
    store.describe(cell.key, {"memory_bytes": 5})
    store.forget(cell.key)
    assert store.read(cell.key) == []
    assert store.description(cell.key) is None


def test_united_descriptions() -> None:
    assert merged_descriptions(None, {"a": 1}) == {"a": 1, "environments": {}}
    assert merged_descriptions({"a": 1, "b": 2}, {"a": None, "b": 3}) == {"a": 1, "b": 3, "environments": {}}


# -- cells of other benchmarks ----------------------------------------------------------------------


def test_a_cell_is_taken_from_a_neighbour_that_has_all_of_it(
    tmp_path: Path, store: ResultStore, cell: Cell
) -> None:
    unfinished, stale, undescribed, sound = (opened(tmp_path, name, cell) for name in "abcd")
    for other in (unfinished, stale, sound):
        other.describe(cell.key, {"memory_bytes": 5})
    unfinished.append(cell.key, complete(cell)[:3])
    stale.append(cell.key, [r | {"code": "other"} for r in complete(cell)])
    undescribed.append(cell.key, complete(cell))
    sound.append(cell.key, complete(cell))
    assert store.take_over(cell, [unfinished, stale, undescribed]) is None
    assert store.read(cell.key) == []
    assert store.take_over(cell, [unfinished, stale, undescribed, sound]) == "d"
    assert store.read(cell.key) == complete(cell)
    assert store.description(cell.key) == sound.description(cell.key)
    store.keep(cell.key, complete(cell)[:1])
    assert store.take_over(cell, [sound]) is None, "it is begun here"
    assert store.read(cell.key) == complete(cell)[:1]


def test_a_benchmark_is_no_neighbour_of_its_own(tmp_path: Path, store: ResultStore, cell: Cell) -> None:
    opened(tmp_path, "other", cell)
    (tmp_path / "link").symlink_to("other")
    shutil.copytree(tmp_path / "other", tmp_path / "a strange name")
    for name, second in (("an-older-one", 1000), ("a-newer-one", 2000)):
        opened(tmp_path, name, cell)
        os.utime(tmp_path / name / "benchmark.json", (second, second))
    assert [other.folder.name for other in store.neighbours()] == ["other", "a-newer-one", "an-older-one"]


# -- locks and the disk -----------------------------------------------------------------------------


def test_the_lock_names_its_holder_and_nobody_before(store: ResultStore, cell: Cell) -> None:
    path = store.folder / "lock"
    path.write_text("process 1 on a machine that lost its power")
    lock = store.open([row_of(cell)])
    assert path.read_text() == f"process {os.getpid()} on {socket.gethostname()}"
    with pytest.raises(UserError, match=f"in use by process {os.getpid()} on"):
        store.open([row_of(cell)])
    path.write_text("")
    with pytest.raises(UserError, match="in use by another process"):
        store.open([row_of(cell)])
    path.write_text("x")
    lock.release()
    assert path.read_text() == ""


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of files at the moment when the disk is waited for."""
    sizes: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: sizes.append(os.fstat(fd).st_size))
    return sizes


def test_the_disk_is_waited_for_where_records_are_at_stake(
    store: ResultStore, cell: Cell, synced: list[int]
) -> None:
    path = store.records_folder / f"{cell.key}.jsonl"
    store.append(cell.key, [result(cell, 0)])
    assert synced == [path.stat().st_size] != [0]
    store.append(cell.key, [result(cell, 1)], sync=False)
    store.describe(cell.key, {"memory_bytes": 5})
    write_atomically(path.with_suffix(".other"), b"x", sync=False)
    assert len(synced) == 1
    store.keep(cell.key, [result(cell, 0)])
    assert synced == [path.stat().st_size] * 2


def test_a_write_that_fails_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.json"
    write_atomically(path, b"old, ", b"in parts")
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", MagicMock(side_effect=OSError("no room")))
        with pytest.raises(OSError, match="no room"):
            write_atomically(path, b"new")
    assert path.read_bytes() == b"old, in parts"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(KeyboardInterrupt), replacing(path):
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old, in parts"
    assert list(tmp_path.iterdir()) == [path]
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError) as caught:
        write_atomically(tmp_path / "missing" / "file.json", b"new")
    assert caught.value.__context__ is None, "the first error is the one to tell"


def test_what_the_disk_refuses_is_a_message() -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(UserError) as caught, disk_errors(Path("a.json")):
        raise full
    assert str(caught.value) == (
        "a.json: cannot be written: No space left on device. "
        "Earlier records are intact; make room and run the same command again."
    )
    with (
        pytest.raises(UserError, match=r"^a.json: cannot be written: odd. Do this.$"),
        write_errors(Path("a.json"), "Do this."),
    ):
        raise OSError("odd")
