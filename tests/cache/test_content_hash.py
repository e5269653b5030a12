"""Files are known by what they contain, read once, and read again whenever they have changed."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.image_trees import files_hashed
from tta_bench.cache import content_hash, entries
from tta_bench.cache.content_hash import KIND, ROW_BYTES, FolderHashes, Stamp, file_sha256

NAMES = ("a/1.bmp", "a/2.bmp", "b/1.bmp")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three files of equal size that are old enough to be remembered, and an empty cache."""
    monkeypatch.setenv("TTA_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(content_hash, "SETTLED_SECONDS", 0.0)
    for i, name in enumerate(NAMES):
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_bytes(bytes([i]) * 3000)
    tick()
    return tmp_path / "data"


def tick() -> None:
    """Let the file system's clock move on."""
    time.sleep(0.02)


def hashes(root: Path, *names: str) -> dict[str, str]:
    """As a process would ask that has asked nothing before."""
    return FolderHashes(root).of({name: Stamp.of((root / name).stat()) for name in names or NAMES})


def test_it_is_the_sha256_of_the_content(root: Path) -> None:
    wanted = {name: hashlib.sha256((root / name).read_bytes()).hexdigest() for name in NAMES}
    assert hashes(root) == wanted
    assert hashes(root) == wanted, "as remembered"
    assert file_sha256(root / NAMES[0]) == wanted[NAMES[0]]


def test_an_unchanged_file_is_read_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = files_hashed(monkeypatch)
    hashes(root, NAMES[0])
    hashes(root)
    hashes(root)
    assert sorted(read) == sorted(root / name for name in NAMES)
    assert len(entries.names(KIND)) == 1, "one table for the folder"


def replaced(path: Path) -> None:
    (path.parent / "other").write_bytes(b"x" * 3000)
    os.replace(path.parent / "other", path)


def with_its_old_time(path: Path) -> None:
    status = path.stat()
    path.write_bytes(b"x" * 3000)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_mtime_ns == status.st_mtime_ns


OVERWRITES: dict[str, Callable[[Path], object]] = {
    "in place": lambda path: path.write_bytes(b"x" * 3000),
    "by a rename": replaced,
    "with its modification time restored": with_its_old_time,
}


@pytest.mark.parametrize("way", OVERWRITES)
def test_an_overwrite_of_equal_size_is_noticed(root: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = hashes(root)
    OVERWRITES[way](root / NAMES[1])
    tick()
    read = files_hashed(monkeypatch)
    after = hashes(root)
    assert read == [root / NAMES[1]]
    assert after == before | {NAMES[1]: hashlib.sha256(b"x" * 3000).hexdigest()}


def test_folders_that_change_places_are_noticed(root: Path) -> None:
    """Their files may have the same names, sizes and times, but they are not the same files."""
    hashes(root)
    for name in ("a", "b"):
        os.utime(root / name / "1.bmp", ns=(1, 1))
    (root / "a").rename(root / "c")
    (root / "b").rename(root / "a")
    assert hashes(root, NAMES[0])[NAMES[0]] == hashlib.sha256(bytes([2]) * 3000).hexdigest()


def test_a_file_that_has_just_been_written_is_not_remembered(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content_hash, "SETTLED_SECONDS", 60.0)
    read, known = files_hashed(monkeypatch), FolderHashes(root)
    stamps = {name: Stamp.of((root / name).stat()) for name in NAMES}
    assert known.of(stamps) == known.of(stamps)
    assert len(read) == 3, "an instance reads it once"
    assert entries.names(KIND) == set()


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut short": lambda content: content[:-7],
    "no table": lambda content: b"no table",
    "another file's": lambda content: content[ROW_BYTES:] + content[: ROW_BYTES - 32] + bytes(32),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_table_costs_time_and_nothing_else(root: Path, damage: str) -> None:
    wanted = hashes(root)
    (path,) = (entries.folder() / KIND).glob("*.*")
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert hashes(root) == wanted
    entries.put(KIND, FolderHashes(root)._table, b"of another format")
    assert hashes(root) == wanted


def test_a_cache_that_cannot_be_written_costs_time_and_nothing_else(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = hashes(root)
    (tmp_path / "file").touch()
    monkeypatch.setenv("TTA_BENCH_CACHE", str(tmp_path / "file" / "cache"))
    read = files_hashed(monkeypatch)
    assert hashes(root) == wanted
    assert len(read) == 3


def test_what_is_read_before_a_failure_is_remembered(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stamps = {name: Stamp.of((root / name).stat()) for name in NAMES}
    (root / NAMES[2]).unlink()
    with pytest.raises(FileNotFoundError):
        FolderHashes(root).of(stamps)
    read = files_hashed(monkeypatch)
    hashes(root, *NAMES[:2])
    assert read == []


def test_two_processes_read_a_file_once(root: Path) -> None:
    code = f"""
import time
from pathlib import Path
from tta_bench.cache import content_hash
content_hash.SETTLED_SECONDS = 0.0
sha256 = content_hash._sha256
def slow(path):
    time.sleep(0.3)
    print(path.name)
    return sha256(path)
content_hash._sha256 = slow
print(content_hash.file_sha256(Path({str(root / NAMES[0])!r})))
"""
    started = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    lines = [line for process in started for line in process.communicate(timeout=60)[0].split()]
    assert lines.count("1.bmp") == 1
    assert len(set(lines)) == 2, "both have the same hash"


def test_long_work_is_announced(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hashes(root, NAMES[0])
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(content_hash, "FIRST_NOTE_SECONDS", 0.0)
    hashes(root)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"{root}: hashing the content of 2 files, 50% of 0.0 GB done.")


def test_a_table_is_compact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTA_BENCH_CACHE", str(tmp_path / "cache"))
    stamps = {f"n01440764/ILSVRC2012_val_{i:08d}.JPEG": Stamp(i, i, i, i) for i in range(20_000)}
    digest = np.random.default_rng(0).bytes(32)
    FolderHashes(tmp_path, lambda name: digest).of(stamps)
    (path,) = (entries.folder() / KIND).glob("*.*")
    assert path.stat().st_size == 20_000 * ROW_BYTES == 1_600_000
    found = FolderHashes(tmp_path, lambda name: pytest.fail(name)).of(stamps)
    assert set(found.values()) == {digest.hex()}
