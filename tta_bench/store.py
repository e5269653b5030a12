"""The results folder of one benchmark: append-only, checksummed records, one file a cell.

    results/<name>/benchmark.json      the cells of the last run, in order, with their names
    results/<name>/cells/<key>.json    what is true of a whole cell: bytes, code, where it was computed
    results/<name>/records/<key>.jsonl a line for every round and domain
    results/<name>/checkpoints/        cells that are under way, see `checkpoint`
    results/<name>/lock                held by the run that is writing

The description of a cell is a file of its own, because it is rewritten while the log is only appended to.
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
FORMAT = 2  # of the folder; 1 had the description in the log, and other keys


class ResultStore:
    """Reads and writes one benchmark's folder; only the driver of a run writes."""

    def __init__(self, results: Path, name: str) -> None:
        self.folder = results / name
        self.records_folder = self.folder / "records"
        self.cells_folder = self.folder / "cells"

    # Reading -----------------------------------------------------------------------------------

    def manifest(self) -> Record:
        """The cells of the last run, in order."""
        path = self.folder / MANIFEST
        try:
            manifest: Record = json.loads(path.read_text())
        except FileNotFoundError:
            raise UserError(f"{path}: no such run. Start one with `tta-bench run`.") from None
        except ValueError:
            raise UserError(f"{path}: is damaged. Run the benchmark again to rewrite it.") from None
        refuse_other_format(path, manifest)
        return manifest

    def read(self, key: str) -> list[Record]:
        """The intact records of a cell, newest last."""
        try:
            content = self._path(key).read_bytes()
        except FileNotFoundError:
            return []
        return [record for record, _ in _intact(content, key)]

    def description(self, key: str) -> Record | None:
        """What is known of a whole cell; None if that was never written, or is damaged."""
        try:
            content = self._description_path(key).read_bytes()
        except FileNotFoundError:
            return None
        return next((record for record, _ in _intact(content, key)), None)

    def status(self, cell: Cell) -> str:
        """`done`, `unsupported`, `failed`, `missing`, or `stale` if other code has made its records."""
        records = self.read(cell.key)
        if any(record["code"] != cell.code for record in records):
            return "stale"
        return cell_status(records, cell.records_expected)

    # Writing -----------------------------------------------------------------------------------

    def open(self, cells: Sequence[Cell]) -> Lock:
        """Take the folder for one run and write down what it is about."""
        with writing(self.folder, "Choose another --results folder."):
            self.records_folder.mkdir(parents=True, exist_ok=True)
            self.cells_folder.mkdir(exist_ok=True)
            lock = Lock(self.folder / "lock")
            try:
                self._refuse_other_format()
                for torn in self.folder.rglob("*.partial"):  # of a run that was killed while writing
                    torn.unlink()
                self.write_manifest([describe(cell) for cell in cells])
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

    def forget(self, key: str) -> None:
        """Drop all that is known of a cell, because it is computed anew."""
        self.keep(key, [])
        self._description_path(key).unlink(missing_ok=True)

    def describe(self, key: str, news: Record) -> None:
        """Add to what is known of a cell: every worker that computes a part of it tells the driver."""
        known = self.description(key)
        described = united(known, {"key": key} | news)
        if described != known:
            with writing(self._description_path(key)):
                write_atomically(self._description_path(key), _line(described), sync=False)

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
            if other.status(cell) == "done" and (description := other.description(cell.key)) is not None:
                self.describe(cell.key, description)
                self.keep(cell.key, other.read(cell.key))
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

    def write_manifest(self, cells: Sequence[Record]) -> None:
        """Write down which cells the folder is about."""
        from tta_bench import __version__

        text = json.dumps({"format": FORMAT, "version": __version__, "cells": cells}, indent=1)
        write_atomically(self.folder / MANIFEST, text.encode())

    def _refuse_other_format(self) -> None:
        """Refuse to write into a folder of another format; a damaged manifest is rewritten."""
        path = self.folder / MANIFEST
        try:
            manifest = json.loads(path.read_text())
        except (FileNotFoundError, ValueError):
            return
        refuse_other_format(path, manifest)

    def _description_path(self, key: str) -> Path:
        return self.cells_folder / f"{key}.json"

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
        "code": cell.code,
        "bits": cell.bits,
        "records_expected": cell.records_expected,
        "variant": str(cell.method.params.get("variant", "")),
        "backprop": cell.method.make().backprop,
    }


def cell_status(records: Sequence[Record], expected: int) -> str:
    """`done`, `unsupported`, `failed` or `missing`, from a cell's records."""
    for state in ("unsupported", "failed"):
        if any(record["status"] == state for record in records):
            return state
    return "done" if len(set(map(place_of, records))) == expected else "missing"


def place_of(record: Record) -> tuple[Any, ...]:
    """Round and domain of a record; a cell that could not run at all has none."""
    return (record.get("round"), record.get("corruption"), record.get("severity"))


def united(known: Record | None, news: Record) -> Record:
    """Two descriptions of one cell as one: of what both tell the newer, but all environments."""
    known = known or {}
    environments = known.get("environments", {}) | news.get("environments", {})
    told = {name: value for name, value in news.items() if value is not None}
    return known | told | {"environments": environments}


def refuse_other_format(path: Path, manifest: Record) -> None:
    """An error if a results folder was written by a version that names cells differently."""
    found = manifest.get("format", 1) if isinstance(manifest, dict) else None
    if found != FORMAT:
        raise UserError(
            f"{path}: the folder has format {found}, and this version reads and writes format {FORMAT}, in "
            "which cells have other keys. Choose another --results folder, or use the version that wrote it."
        )


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
