"""The cache of everything that can be computed again: checksummed, locked, written atomically, optional.

An entry is one file whose name contains the SHA-256 of its content: one rename publishes content and checksum
together, and a compiled library is loaded from its entry. A damaged entry is deleted and computed again. If
the folder cannot be written or locked, values are computed and not saved.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO, TypeVar

from tta_bench.files import PARTIAL, replacing

try:
    import fcntl
except ImportError:  # Windows: two processes may compute the same entry, which is still written atomically
    fcntl = None  # type: ignore[assignment]

Value = TypeVar("Value")

STALE_SECONDS = 3600  # a leftover of this age that no process has locked belongs to a dead process
LEFTOVERS = (PARTIAL, ".draft", ".lock")
ENTRY = re.compile(r"(.*)\.[0-9a-f]{64}(\.[^.]*)?", re.DOTALL)  # the name of an entry's file


def folder() -> Path:
    """$TTA_BENCH_CACHE, else $XDG_CACHE_HOME/tta-bench, else ~/.cache/tta-bench."""
    if chosen := os.environ.get("TTA_BENCH_CACHE"):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tta-bench"


def problem() -> str | None:
    """Why the cache cannot be written, with the remedy; None if it can."""
    try:
        folder().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder()) as file:
            file.write(bytes(4096))
    except OSError as error:
        return (
            f"{folder()}: the cache cannot be written ({error.strerror or error}), so nothing is saved for "
            "later runs. Set $TTA_BENCH_CACHE to a folder that can be written and has space."
        )
    return None


def get(kind: str, name: str) -> bytes | None:
    """The content of an entry; None if there is none, or only a damaged one."""
    found = _intact(kind, name)
    return found[1] if found else None


def find(kind: str, name: str) -> Path | None:
    """The file of an entry, after its checksum was verified; None if there is none."""
    found = _intact(kind, name)
    return found[0] if found else None


def names(kind: str) -> set[str]:
    """The names of all entries of a kind, intact or not."""
    with suppress(OSError):
        return {name for file in os.listdir(folder() / kind) if (name := _name_of(file))}
    return set()


def put(kind: str, name: str, content: bytes) -> None:
    """Save an entry, replacing one of the same name, if the folder can be written."""
    with locked(kind, name):
        _publish(kind, name, content)


def load_or_make(
    kind: str,
    name: str,
    make: Callable[[], Value],
    encode: Callable[[Value], bytes],
    decode: Callable[[bytes], Value],
) -> Value:
    """A value: read if it was saved before, otherwise made by one process while others wait, and saved.

    If `decode` raises ValueError, the value is made again.
    """

    def load() -> Value | None:
        content = get(kind, name)
        with suppress(ValueError):
            return None if content is None else decode(content)
        return None

    if (found := load()) is not None:
        return found
    with locked(kind, name):
        if (found := load()) is not None:
            return found
        made = make()
        _publish(kind, name, encode(made))
        return made


@contextmanager
def locked(kind: str, name: str) -> Iterator[None]:
    """Only one process at a time runs the block, for one name; the lock ends with its process.

    If the lock file cannot be made, the block runs without a lock.
    """
    path = folder() / kind / f"{name}.lock"
    file = _acquire(path)
    try:
        yield
    finally:
        if file is not None:
            with suppress(OSError):
                path.unlink()  # while it is locked: a waiting process sees that, and makes a new one
            file.close()


@contextmanager
def writing(path: Path, size_bytes: int = 0) -> Iterator[BinaryIO]:
    """A new file of the cache, which appears as `path` when the block ends without an error.

    If `size_bytes` is given, a full disk is an OSError before anything is computed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path.parent)
    with replacing(path) as file:
        _try_lock(file)  # so that no other process takes it for a leftover
        _reserve(file, size_bytes)
        yield file


def _intact(kind: str, name: str) -> tuple[Path, bytes] | None:
    """File and content of the newest entry whose checksum is right; others are deleted."""
    for path in _versions(kind, name):
        with suppress(OSError):  # another process has just deleted it, or the disk fails
            content = path.read_bytes()
            if path == _path(kind, name, hashlib.sha256(content).hexdigest()):
                return path, content
            path.unlink()
    return None


def _publish(kind: str, name: str, content: bytes) -> None:
    path = _path(kind, name, hashlib.sha256(content).hexdigest())
    with suppress(OSError):
        with writing(path) as file:
            file.write(content)
        for old in _versions(kind, name):
            if old != path:
                old.unlink()


def _path(kind: str, name: str, sha256: str) -> Path:
    plain = folder() / kind / name
    return plain.with_name(f"{plain.stem}.{sha256}{plain.suffix}")


def _name_of(file: str) -> str | None:
    """The name of the entry that a file holds, by the file's own name."""
    match = ENTRY.fullmatch(file)
    return match[1] + (match[2] or "") if match else None


def _versions(kind: str, name: str) -> list[Path]:
    """The files with this entry's name, the newest first."""
    plain = folder() / kind / name
    with suppress(OSError):
        # Not Path.glob, which takes ten times as long: some kinds are read image by image.
        alike = [file for file in os.listdir(plain.parent) if file.startswith(plain.stem)]
        found = [plain.with_name(file) for file in alike if _name_of(file) == plain.name]
        return sorted(found, key=lambda path: -path.stat().st_mtime_ns)
    return []


def _acquire(path: Path) -> IO[bytes] | None:
    """The lock file, locked; None if that is impossible."""
    if fcntl is None:
        return None
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            file = open(path, "ab")  # noqa: SIM115 (held until released)
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_at(path, file):
                return file
            file.close()  # the process that held it has deleted it
    return None


def _is_at(path: Path, file: IO[bytes]) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _try_lock(file: IO[bytes]) -> bool:
    """Lock a file until it is closed; False if another process has locked it."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: age alone decides
        return True
    return True


def _reserve(file: IO[bytes], size_bytes: int) -> None:
    if size_bytes and hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file.fileno(), 0, size_bytes)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):  # a file system that cannot reserve
                raise


def _remove_leftovers(kind: Path) -> None:
    """Delete the unfinished files of dead processes from a folder."""
    stale = time.time() - STALE_SECONDS
    for path in (kind / file for file in os.listdir(kind) if file.endswith(LEFTOVERS)):
        with suppress(OSError):
            if path.stat().st_mtime < stale:
                with open(path, "r+b") as file:
                    if _try_lock(file):
                        path.unlink()
