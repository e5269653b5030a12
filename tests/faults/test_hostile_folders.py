"""Results folders made to harm: nothing outside of a folder is written, emptied, deleted or waited for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.conftest import Bench
from tests.faults.test_malformed_results import GRID, KEY, called, line
from tests.helpers import report_results
from tta_bench.errors import UserError
from tta_bench.files import write_atomically
from tta_bench.storage.checkpoints import Checkpoint, Checkpoints
from tta_bench.storage.lock import Lock
from tta_bench.storage.store import ResultStore

CLIMBING = ["../../precious", "../precious", "/etc/passwd", "a/b", "..", ".", "", ".hidden", "-rf", "a\0b"]
ODD = ["a\nb", "a b", "\x1b[2J", "a" * 300, "ünï", "..\\x", "~", "$(x)"]


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    """A good folder, and beside it what must not change."""
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "precious.jsonl").write_text("precious")
    (tmp_path / "precious.checkpoint").write_text("precious")
    return report_results.write(GRID, tmp_path / "results")


@pytest.fixture(autouse=True)
def _nothing_is_lost(store: ResultStore, tmp_path: Path) -> object:
    yield
    for name in ("precious", "precious.jsonl", "precious.checkpoint"):
        assert (tmp_path / name).read_text() == "precious"


@pytest.mark.parametrize("key", CLIMBING + ODD)
def test_a_key_is_never_a_path(key: str, store: ResultStore, tmp_path: Path) -> None:
    checkpoints = Checkpoints(store.folder)
    for act in (
        lambda: store.read(key),
        lambda: store.description(key),
        lambda: store.keep(key, []),
        lambda: store.append(key, []),
        lambda: store.forget(key),
        lambda: store.describe(key, {}),
        lambda: checkpoints.load(key),
        lambda: checkpoints.remove(key),
        lambda: checkpoints.save(Checkpoint(key, 0, 0, b"")),
    ):
        with pytest.raises(UserError, match="is not a cell's key"):
            act()


@pytest.mark.parametrize("key", CLIMBING + ODD)
def test_a_folder_with_such_a_key_is_not_merged(key: str, store: ResultStore, tmp_path: Path) -> None:
    path = store.folder / "benchmark.json"
    manifest = json.loads(path.read_text())
    manifest["cells"][0]["key"] = key
    path.write_text(json.dumps(manifest))
    code, said = called("merge", tmp_path / "results", "--into", tmp_path / "a" / "b")
    assert code == 2
    assert f"{path}: cells[0].key: String should match pattern" in said
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("name", CLIMBING + ODD)
def test_a_benchmark_has_a_plain_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a benchmark's name"):
        ResultStore(tmp_path, name)


@pytest.mark.parametrize("name", ["two words", "\x1b[2J", ".hidden", "a\nb"])
def test_a_folder_with_such_a_name_is_named_and_not_merged(
    name: str, store: ResultStore, tmp_path: Path
) -> None:
    store.folder.rename(tmp_path / "results" / name)
    results = str(tmp_path / "results")
    for words in (["merge", results, "--into", str(tmp_path / "C")], ["table", "--results", results]):
        code, said = called(*words)
        assert code == 2
        assert "is not a benchmark's name" in said or "no results here" in said
        assert "\x1b" not in said
    assert not (tmp_path / "C").exists()


def test_records_of_files_with_such_names_are_not_merged(store: ResultStore, tmp_path: Path) -> None:
    (store.records_folder / "two words.jsonl").write_bytes(line({"key": "two words"}))
    code, said = called("merge", tmp_path / "results", "--into", tmp_path / "C")
    assert code == 2
    assert "'two words' is not a cell's key" in said


def more(folder: Path) -> None:
    """The same results somewhere else, and a failure, so that something is written where they are merged."""
    failure = {"key": KEY, "status": "failed", "code": report_results.CODE, "reason": "why"}
    report_results.write(GRID, folder).append(KEY, [failure])


# -- links --------------------------------------------------------------------------------------------

LINKS = [
    "benchmark.json",
    "lock",
    "merges.jsonl",
    f"records/{KEY}.jsonl",
    f"cells/{KEY}.json",
    f"checkpoints/{KEY}.checkpoint",
    f"checkpoints/{KEY}.last",
]


@pytest.mark.parametrize("name", LINKS)
def test_nothing_is_read_or_written_through_a_link(name: str, store: ResultStore, tmp_path: Path) -> None:
    """Before: merging into a folder whose lock is a link emptied its target."""
    more(tmp_path / "other")
    path = store.folder / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(tmp_path / "precious")
    if name != f"checkpoints/{KEY}.last":  # only looked at if there is no checkpoint of a cell under way
        code, said = called("merge", tmp_path / "other", "--into", tmp_path / "results")
        assert code == 2, said
        assert f"{path}: is not a plain file" in said


@pytest.mark.parametrize("name", ["records", "cells", "checkpoints", "."])
def test_nothing_is_written_into_a_linked_folder(name: str, store: ResultStore, tmp_path: Path) -> None:
    target = tmp_path / "target"
    inner = store.folder if name == "." else store.folder / name
    if inner.exists():
        inner.rename(target)
    else:
        target.mkdir()
    inner.symlink_to(target, target_is_directory=True)
    before = sorted(target.rglob("*"))
    more(tmp_path / "other")
    code, said = called("merge", tmp_path / "other", "--into", tmp_path / "results")
    assert code == 2
    assert f"{inner}: is a symbolic link" in said
    assert sorted(target.rglob("*")) == before


def test_a_pipe_is_not_waited_for(store: ResultStore, tmp_path: Path) -> None:
    path = store.records_folder / f"{KEY}.jsonl"
    path.unlink()
    os.mkfifo(path)
    code, said = called("table", "--results", tmp_path / "results")
    assert code == 2
    assert f"{path}: is not a plain file" in said


def test_a_folder_in_the_place_of_a_file_is_told(store: ResultStore, tmp_path: Path) -> None:
    (store.folder / "benchmark.json").unlink()
    (store.folder / "benchmark.json").mkdir()
    for words in (["table", "--results"], ["merge", tmp_path / "results", "--into"]):
        target = tmp_path / ("results" if words[0] == "table" else "C")
        code, said = called(*words, target)
        assert code == 2
        assert "benchmark.json: is not a plain file" in said


def test_a_file_is_not_written_through_a_link_that_waits_for_it(
    store: ResultStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if somebody guesses the random name of the file that is being written."""
    monkeypatch.setattr("secrets.token_hex", lambda size: "guessed")
    path = store.folder / "benchmark.json"
    (store.folder / "benchmark.json.guessed.partial").symlink_to(tmp_path / "precious")
    with pytest.raises(FileExistsError):
        write_atomically(path, b"{}")
    write_atomically(path, b"{}")
    assert path.read_bytes() == b"{}"


def test_a_lock_says_who_holds_it_whatever_it_holds(store: ResultStore) -> None:
    (store.folder / "lock").write_bytes(b"\xff\xfe")
    Lock(store.folder / "lock").release()


# -- systems ------------------------------------------------------------------------------------------


WINDOWS = """
import signal, sys
sys.modules["fcntl"] = None
del signal.SIGALRM
from tta_bench.cli import main
main()
"""


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["table", "--results", "RESULTS"], 0, "Accuracy (%)"),
        (["status", "--results", "RESULTS"], 0, "2 done"),
        (["merge", "RESULTS", "--into", "RESULTS/../new"], 0, "2 cells, 2 done"),
        (["run", "FILE", "--results", "RESULTS"], 2, "which needs Linux or macOS. Run there; reading"),
    ],
)
def test_without_fcntl_and_alarms_results_can_be_read_and_a_run_says_what_it_needs(
    words: list[str], code: int, told: str, store: ResultStore, bench: Bench
) -> None:
    bench.write(["source"])
    paths = {"RESULTS": str(store.folder.parent), "FILE": str(bench.file)}
    for name, path in paths.items():
        words = [word.replace(name, path) for word in words]
    outcome = subprocess.run([sys.executable, "-c", WINDOWS, *words], capture_output=True, text=True)
    assert outcome.returncode == code, outcome.stderr
    assert told in outcome.stdout + outcome.stderr
    assert "Traceback" not in outcome.stderr
