"""SHA-256 of the content of files, cached so that an unchanged file is read once.

The cache holds one table for each folder, with a row for each file. A row is valid while the size, the times
and the inode of its file are the same. Programs cannot set the time of the last change (ctime), so a file
that is overwritten is read again even if its size and its modification time (mtime) are restored. A table
that is lost, damaged or cannot be written costs time and nothing else.
"""

from __future__ import annotations

import hashlib
import os
import struct
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from tta_bench.cache import entries
from tta_bench.terminal import say

KIND = "content-hashes"
STAMP = struct.Struct("<qqqQ")
NAME_BYTES = 16
ROW_BYTES = NAME_BYTES + STAMP.size + 32  # hash of the file's name, its stamp, hash of its content
THREADS = 16  # most of the time they wait for the disk or the network
FILES_A_TASK = 64
CHUNK_BYTES = 1 << 20
# A file that changes twice within one tick of its file system's clock (up to 2 s) keeps its times.
SETTLED_SECONDS = 2.0
FIRST_NOTE_SECONDS, NOTE_SECONDS = 3.0, 15.0


class Stamp(NamedTuple):
    """Size, times and inode of a file; they change whenever the content does."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        """The stamp of a file, from its status."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino % 2**64)


Rows = dict[bytes, bytes]  # by the hash of a file's name: its packed stamp, then the hash of its content


class FolderHashes:
    """The hashes of the files below one folder; each file is read at most once by an instance.

    `digest` computes the SHA-256 for a name that does not stand for a whole file.
    """

    def __init__(self, root: Path, digest: Callable[[str], bytes] | None = None) -> None:
        self.root = root.resolve()
        self._digest = digest or (lambda name: _sha256(self.root / name))

    def of(self, stamps: Mapping[str, Stamp]) -> dict[str, str]:
        """The SHA-256 of each file in hexadecimal; files are named by their paths below the folder."""
        wanted = {name: (_short(name), STAMP.pack(*stamp)) for name, stamp in stamps.items()}
        if self._missing(wanted):
            with entries.locked(KIND, f"{self._table}-reading"):
                self._rows.update(self._saved())  # by another process, while this one waited
                self._read({name: stamps[name] for name in self._missing(wanted)})
        return {name: self._rows[short][STAMP.size :].hex() for name, (short, _) in wanted.items()}

    def _missing(self, wanted: Mapping[str, tuple[bytes, bytes]]) -> list[str]:
        known = self._rows.get
        return [name for name, (short, stamp) in wanted.items() if not known(short, b"").startswith(stamp)]

    def _read(self, stamps: Mapping[str, Stamp]) -> None:
        """Hash these files in parallel, and save the hashes of those that have not just been written."""
        names, settled_ns = list(stamps), time.time_ns() - int(SETTLED_SECONDS * 1e9)
        size = max(1, min(FILES_A_TASK, len(names) // THREADS))
        tasks = [names[i : i + size] for i in range(0, len(names), size)]
        fresh: Rows = {}
        notes = _Notes(self.root, stamps.values())
        pool = ThreadPoolExecutor(THREADS, "content-hash")
        try:
            for task, digests in zip(tasks, pool.map(self._digests, tasks), strict=True):
                for name, digest in zip(task, digests, strict=True):
                    row = STAMP.pack(*stamps[name]) + digest
                    self._rows[_short(name)] = row
                    if stamps[name].ctime_ns < settled_ns:
                        fresh[_short(name)] = row
                notes.done(stamps[name].size for name in task)
        finally:  # also after Ctrl-C, or when a file cannot be read
            pool.shutdown(cancel_futures=True)
            if fresh:
                rows = self._saved() | fresh
                entries.put(KIND, self._table, b"".join(name + row for name, row in rows.items()))

    def _digests(self, names: Sequence[str]) -> list[bytes]:
        return [self._digest(name) for name in names]

    @cached_property
    def _table(self) -> str:
        return hashlib.sha256(os.fsencode(self.root)).hexdigest()[:32]

    @cached_property
    def _rows(self) -> Rows:
        return self._saved()

    def _saved(self) -> Rows:
        content = entries.get(KIND, self._table) or b""
        if len(content) % ROW_BYTES:  # no table of this format
            return {}
        rows = (content[i : i + ROW_BYTES] for i in range(0, len(content), ROW_BYTES))
        return {row[:NAME_BYTES]: row[NAME_BYTES:] for row in rows}


def file_sha256(path: Path) -> str:
    """SHA-256 of the content of one file, in hexadecimal."""
    path = path.resolve()
    return FolderHashes(path.parent).of({path.name: Stamp.of(path.stat())})[path.name]


class _Notes:
    """Prints progress to standard error once reading has taken some seconds."""

    def __init__(self, root: Path, stamps: Collection[Stamp]) -> None:
        self.root, self.files, self.bytes = root, len(stamps), sum(stamp.size for stamp in stamps)
        self.bytes_done = 0
        self.next_note = time.monotonic() + FIRST_NOTE_SECONDS

    def done(self, sizes: Iterable[int]) -> None:
        """Files of these sizes have been read."""
        self.bytes_done += sum(sizes)
        if time.monotonic() < self.next_note:
            return
        self.next_note = time.monotonic() + NOTE_SECONDS
        share = f"{self.bytes_done / max(1, self.bytes):.0%} of {self.bytes / 1e9:.1f} GB"
        say(
            f"{self.root}: hashing the content of {self.files} files, {share} done. Later runs read "
            "only files that have changed.",
            error=True,
        )


def _sha256(path: Path) -> bytes:
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.digest()


def _short(name: str) -> bytes:
    return hashlib.blake2b(os.fsencode(name), digest_size=NAME_BYTES).digest()
