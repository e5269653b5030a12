"""The results folder of one benchmark: append-only, checksummed records, one file a cell.

    results/<name>/benchmark.json      the cells of the last run, in order, with their names
    results/<name>/records/<key>.jsonl the cell's description, then a line for every round and domain
    results/<name>/checkpoints/        cells that are under way, see `checkpoint`
    results/<name>/lock                held by the run that is writing

Every line ends with a checksum of what stands before it, so that a torn or edited line is noticed.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import socket
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tta_bench.errors import UserError

if TYPE_CHECKING:  # reading results must not import torch, which cells' plugins do
    from tta_bench.grid import Cell

Record = dict[str, Any]
MANIFEST = "benchmark.json"


class ResultStore:
    """Reads and writes one benchmark's folder; only the driver of a run writes."""

    def __init__(self, results: Path, name: str) -> None:
        self.folder = results / name
        self.records_folder = self.folder / "records"

    # Reading -----------------------------------------------------------------------------------

    def manifest(self) -> Record:
        """The cells of the last run, in order."""
        path = self.folder / MANIFEST
        try:
            return json.loads(path.read_text())
        except FileNotFoundError:
            raise UserError(f"{path}: no such run. Start one with `tta-bench run`.") from None
        except ValueError:
            raise UserError(f"{path}: is damaged. Run the benchmark again to rewrite it.") from None

    def read(self, key: str) -> list[Record]:
        """The intact records of a cell, newest last."""
        try:
            content = self._path(key).read_bytes()
        except FileNotFoundError:
            return []
        return [record for record, _ in _intact(content, key)]

    def status(self, cell: Cell) -> str:
        """`done`, `unsupported`, `failed` or `missing`."""
        return cell_status(self.read(cell.key), cell.records_expected)

    # Writing -----------------------------------------------------------------------------------

    def open(self, cells: Sequence[Cell]) -> Lock:
        """Take the folder for one run and write down what it is about."""
        with writing(self.folder, "Choose another --results folder."):
            self.records_folder.mkdir(parents=True, exist_ok=True)
            lock = Lock(self.folder / "lock")
            try:
                for torn in self.folder.rglob("*.partial"):  # of a run that was killed while writing
                    torn.unlink()
                self.write_manifest(cells)
            except BaseException:
                lock.release()
                raise
        return lock

    def keep(self, key: str, wanted: Sequence[Record]) -> None:
        """Drop all records of a cell but these, because the others are about to be computed anew."""
        path = self._path(key)
        with writing(path):
            if wanted:
                write_atomically(path, b"".join(map(_line, wanted)))
            else:
                path.unlink(missing_ok=True)

    def append(self, key: str, records: Sequence[Record], sync: bool = True) -> None:
        """Add records of one cell, and see all of its records on the disk before going on if asked to."""
        path = self._path(key)
        with writing(path), open(path, "ab") as file:
            file.write(b"".join(map(_line, records)))
            file.flush()
            if sync:
                os.fsync(file.fileno())

    def neighbours(self) -> list[ResultStore]:
        """The other benchmarks of the results folder, the one that ran last first."""
        results, own = self.folder.parent, self.folder.name
        return [ResultStore(results, name) for name in benchmarks(results) if name != own]

    def take_over(self, cell: Cell, neighbours: Sequence[ResultStore]) -> str | None:
        """Copy a cell that is not begun here and done in a neighbour; say in which.

        Its key covers all that could change a number, so it would be the same here.
        """
        if self._path(cell.key).exists():
            return None
        for other in neighbours:
            records = other.read(cell.key)
            if cell_status(records, cell.records_expected) == "done":
                self.keep(cell.key, records)
                return other.folder.name
        return None

    def repair(self, cell: Cell) -> str | None:
        """Set a damaged file aside, keep its intact lines; say which file it was."""
        path = self._path(cell.key)
        if not path.exists():
            return None
        content = path.read_bytes()
        sound = b"".join(line for _, line in _intact(content, cell.key))
        if sound == content:
            return None
        aside = path.with_suffix(f".damaged-{int(time.time())}")
        with writing(path):
            os.replace(path, aside)
            write_atomically(path, sound)
        return f"{path.name}: a damaged record was set aside as {aside.name} and is computed again"

    def write_manifest(self, cells: Sequence[Cell]) -> None:
        """Write down what a run is about."""
        from tta_bench import __version__

        rows = [describe(cell) for cell in cells]
        text = json.dumps({"version": __version__, "cells": rows}, indent=1)
        write_atomically(self.folder / MANIFEST, text.encode())

    def _path(self, key: str) -> Path:
        return self.records_folder / f"{key}.jsonl"


class Lock:
    """An advisory lock that dies with its process."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "a+")  # noqa: SIM115 (held until released)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.seek(0)
            holder = self._file.read().strip() or "another process"
            self._file.close()
            raise UserError(
                f"{path.parent}: in use by {holder}. Wait for it, or choose another --results folder."
            ) from None
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()} on {socket.gethostname()}")
        self._file.flush()

    def release(self) -> None:
        """Let the folder go."""
        self._file.truncate(0)
        self._file.close()


def describe(cell: Cell) -> Record:
    """A cell as the results folder tells it: its identity, its names, its place, its method's facts."""
    return dataclasses.asdict(cell) | {
        "bits": cell.bits,
        "records_expected": cell.records_expected,
        "variant": str(cell.method.params.get("variant", "")),
        "backprop": cell.method.make("methods").backprop,
    }


def cell_status(records: Sequence[Record], expected: int) -> str:
    """`done`, `unsupported`, `failed` or `missing`, from a cell's records."""
    domains = [record for record in records if record["kind"] == "domain"]
    for state in ("unsupported", "failed"):
        if any(record["status"] == state for record in domains):
            return state
    places = {(record["round"], record["corruption"], record["severity"]) for record in domains}
    return "done" if len(places) == expected else "missing"


def benchmarks(results: Path) -> list[str]:
    """Names of the benchmarks in a results folder, the one that ran last first."""
    found = sorted(results.glob(f"*/{MANIFEST}"), key=lambda p: p.stat().st_mtime, reverse=True)
    return [path.parent.name for path in found]


def _line(record: Record) -> bytes:
    text = json.dumps(record, separators=(",", ":"), allow_nan=False)
    return f"{text}\t{zlib.crc32(text.encode()):08x}\n".encode()


def _intact(content: bytes, key: str) -> Iterator[tuple[Record, bytes]]:
    """The cell's records whose checksum fits, each with its bytes."""
    for line in content.split(b"\n")[:-1]:
        text, _, checksum = line.rpartition(b"\t")
        if checksum != f"{zlib.crc32(text):08x}".encode():
            continue
        record = json.loads(text)
        if record["key"] == key:
            yield record, line + b"\n"


@contextmanager
def writing(path: Path, remedy: str = "") -> Iterator[None]:
    """Turn what the disk refuses into a message: which file, why, and that nothing else is lost."""
    try:
        yield
    except OSError as error:
        remedy = remedy or "Earlier records are intact; make room and run the same command again."
        raise UserError(f"{path}: cannot be written: {error.strerror or error}. {remedy}") from error


def write_atomically(path: Path, *parts: bytes, sync: bool = True) -> None:
    """Put a file in the place of another so that a crash leaves the one or the other, never a mixture."""
    partial = path.with_suffix(f".{os.getpid()}.partial")
    try:
        with open(partial, "wb") as file:
            file.writelines(parts)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
