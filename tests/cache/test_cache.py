"""The cache layer: damage is noticed, one process makes what several need, and no caller ever fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tta_bench.cache import entries

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "truncated": lambda content: content[:-1],
    "longer": lambda content: content + b" ",
    "one bit": lambda content: bytes([content[0] ^ 1]) + content[1:],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TTA_BENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def unwritable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that nobody can create, not even root: below a file."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("TTA_BENCH_CACHE", str(tmp_path / "file" / "cache"))
    return tmp_path / "file" / "cache"


def text(content: str = "made", made: list[str] | None = None) -> str:
    """Load or make one small entry; `made` counts how often it was made."""

    def make() -> str:
        if made is not None:
            made.append(content)
        return content

    return entries.load_or_make("texts", "one.txt", make, str.encode, bytes.decode)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


# -- entries -----------------------------------------------------------------------------------------


def test_what_was_put_is_got(folder: Path) -> None:
    assert entries.get("texts", "one.txt") is None
    entries.put("texts", "one.txt", b"first")
    entries.put("texts", "one", b"no suffix")
    entries.put("texts", "two.txt", b"")
    assert entries.get("texts", "one.txt") == b"first"
    assert entries.get("texts", "one") == b"no suffix"
    assert entries.get("texts", "two.txt") == b""
    assert entries.get("other", "one.txt") is None


def test_a_newer_entry_replaces_the_older(folder: Path) -> None:
    for content in (b"first", b"second", b"first"):
        entries.put("texts", "one.txt", content)
        assert entries.get("texts", "one.txt") == content
    assert len(files(folder)) == 1


def test_an_entry_is_a_file_with_its_suffix_and_nothing_beside_it(folder: Path) -> None:
    entries.put("native", "one.so", b"code")
    path = entries.find("native", "one.so")
    assert path is not None
    assert path.read_bytes() == b"code"
    assert path.suffix == ".so"
    assert files(folder) == [path.name]


def test_all_entries_of_a_kind_have_names(folder: Path) -> None:
    assert entries.names("texts") == set()
    for name in ("one.txt", "one", "a.b.txt"):
        entries.put("texts", name, b"content")
    (folder / "texts" / "stray.txt").touch()
    assert entries.names("texts") == {"one.txt", "one", "a.b.txt"}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_deleted_and_made_again(damage: str, folder: Path) -> None:
    made: list[str] = []
    text(made=made)
    (path,) = (folder / "texts").iterdir()
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert entries.get("texts", "one.txt") is None
    assert not path.exists()
    assert text(made=made) == text(made=made) == "made"
    assert len(made) == 2


def test_content_that_cannot_be_decoded_is_made_again(folder: Path) -> None:
    entries.put("texts", "one.txt", b"\xff")
    assert text("new") == "new"
    assert entries.get("texts", "one.txt") == b"new"


def test_an_error_while_making_leaves_nothing(folder: Path) -> None:
    def fail() -> str:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        entries.load_or_make("texts", "one.txt", fail, str.encode, bytes.decode)
    assert files(folder) == []
    assert text() == "made"


# -- leftovers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".partial", ".draft", ".lock"])
def test_leftovers_of_dead_processes_are_removed(suffix: str, folder: Path) -> None:
    old, young = folder / "texts" / f"old{suffix}", folder / "texts" / f"young{suffix}"
    old.parent.mkdir(parents=True)
    for path in (old, young):
        path.write_bytes(b"unfinished")
    os.utime(old, (time.time() - 2 * entries.STALE_SECONDS,) * 2)
    text()
    assert not old.exists()
    assert young.exists()


def test_files_of_live_writers_are_kept(folder: Path) -> None:
    long_ago = (time.time() - 2 * entries.STALE_SECONDS,) * 2
    with entries.writing(folder / "texts" / "slow") as file, entries.locked("texts", "slow"):
        for path in (folder / "texts").iterdir():
            os.utime(path, long_ago)
        text()
        file.write(b"whole")
        assert {Path(name).suffix for name in files(folder)} == {".partial", ".lock", ".txt"}
    assert (folder / "texts" / "slow").read_bytes() == b"whole"


# -- processes ---------------------------------------------------------------------------------------

MAKE_SLOWLY = """
import sys, time
from pathlib import Path
from tta_bench.cache import entries

def make():
    with open(sys.argv[1], "a") as log:
        log.write("made\\n")
    time.sleep(float(sys.argv[2]))
    return "slow"

print(entries.load_or_make("texts", "slow.txt", make, str.encode, bytes.decode))
"""


def start(log: Path, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", MAKE_SLOWLY, str(log), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    assert condition()


def test_of_several_processes_one_makes_and_the_others_wait(folder: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    processes = [start(log, 1.0) for _ in range(4)]
    assert [process.communicate(timeout=60)[0] for process in processes] == ["slow\n"] * 4
    assert log.read_text() == "made\n"
    assert len(files(folder)) == 1


def test_the_lock_of_a_killed_process_ends_with_it(folder: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    killed = start(log, 600)
    wait_for(log.exists)
    waiting = start(log, 0)
    time.sleep(0.5)
    assert waiting.poll() is None
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert waiting.communicate(timeout=60)[0] == "slow\n"
    assert log.read_text() == "made\nmade\n"


# -- folders that cannot be used ---------------------------------------------------------------------


def test_an_unwritable_folder_costs_time_only(unwritable: Path) -> None:
    made: list[str] = []
    assert text(made=made) == text(made=made) == "made"
    assert len(made) == 2
    entries.put("texts", "one.txt", b"lost")
    assert entries.get("texts", "one.txt") is None
    assert entries.find("texts", "one.txt") is None


def test_a_full_disk_costs_time_only(folder: Path) -> None:
    """A limit on file sizes stands for the full disk: writing fails after some bytes in the same way."""
    script = (
        "import resource, sys\n"
        "from tta_bench.cache import entries\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "value = entries.load_or_make('texts', 'one', lambda: 'x' * 5000, str.encode, bytes.decode)\n"
        "print(len(value), entries.problem())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("5000 ")
    assert "cannot be written (File too large)" in done.stdout
    assert files(folder) == []


def test_without_locks_values_are_made_and_saved(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "fcntl", None)
    made: list[str] = []
    assert text(made=made) == text(made=made) == "made"
    assert len(made) == 1
    assert len(files(folder)) == 1


def test_a_file_system_without_locks_is_used_all_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(entries.fcntl, "flock", refuse)
    assert text() == text("other") == "made"


def test_the_layer_imports_without_fcntl() -> None:
    start = "import sys; sys.modules['fcntl'] = None; "
    script = start + "from tta_bench.cache import entries; print(entries.fcntl)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "None\n"


def test_the_problem_names_place_reason_and_remedy(unwritable: Path) -> None:
    problem = entries.problem()
    assert problem is not None
    assert problem.startswith(f"{unwritable}: the cache cannot be written (Not a directory)")
    assert "Set $TTA_BENCH_CACHE" in problem
    assert "\n" not in problem


def test_no_problem_where_there_is_none(folder: Path) -> None:
    assert entries.problem() is None
    assert files(folder) == []


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TTA_BENCH_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert entries.folder() == Path("/x/tta-bench")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert entries.folder() == Path.home() / ".cache/tta-bench"
    monkeypatch.setenv("TTA_BENCH_CACHE", "/y")
    assert entries.folder() == Path("/y")
