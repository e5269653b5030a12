"""The results folder of one benchmark: append-only, checksummed records, one file a cell.

    results/<name>/benchmark.json      the cells of the last run, in order, with their names
    results/<name>/cells/<key>.json    what is true of a whole cell: bytes, code, where it was computed
    results/<name>/records/<key>.jsonl a line for every round and domain
    results/<name>/checkpoints/        cells that are under way, see `checkpoint`
    results/<name>/lock                held by the run that is writing

The description of a cell is a file of its own, because it is rewritten while the log is only appended to.
Every line ends with a checksum of what stands before it, so that a torn or edited line is noticed. What each
file may hold is in `result_format`; the folder may come from anybody.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic_core import from_json

from tta_bench import result_format
from tta_bench.errors import UserError
from tta_bench.folder_lock import Lock
from tta_bench.plain_files import KEY, NAME, content_of, plain_file, plain_folder, plain_name
from tta_bench.record_lines import Record, as_json, encode, intact
from tta_bench.result_format import FORMAT

if TYPE_CHECKING:  # reading results must not import torch, which cells' plugins do
    from tta_bench.grid import Cell

MANIFEST = "benchmark.json"
REMEDY = "Run the benchmark again to rewrite it, or get the folder once more from its maker."


class ResultStore:
    """Reads and writes one benchmark's folder; only the driver of a run writes."""

    def __init__(self, results: Path, name: str) -> None:
        self.folder = plain_folder(results / plain_name(name, NAME, results, "a benchmark's name"))
        self.damage: dict[Path, str] = {}  # logs with lines that do not count, and how many
        self._expected: dict[str, tuple[frozenset[tuple[Any, ...]], int]] = {}  # domains, rounds; by key
        self.records_folder = self.folder / "records"
        self.cells_folder = self.folder / "cells"

    # Reading -----------------------------------------------------------------------------------

    def manifest(self) -> Record:
        """The cells of the last run, in order."""
        path = plain_file(self.folder, MANIFEST)
        content = content_of(path)
        if content is None:
            raise UserError(f"{path}: no such run. Start one with `tta-bench run`.")
        try:
            manifest: Record = result_format.MANIFEST_FORMAT.validate_json(content)
        except ValidationError as error:
            refuse_other_format(path, content)
            found = [f"{path}: {text}." for text in result_format.problems(error)]
            raise UserError("\n".join([*found, REMEDY])) from None
        for cell in [*manifest["cells"], *manifest.get("earlier", [])]:
            self.expect(cell["key"], cell["domains"], cell["rounds"])
        return manifest

    def earlier(self) -> list[Record]:
        """The complete cells of earlier runs that the last run was not about: its protocol was another."""
        found: list[Record] = self.manifest().get("earlier", [])
        return [c for c in found if cell_status(self.read(c["key"]), c["records_expected"]) == "done"]

    def expect(self, key: str, domains: Iterable[Sequence[Any]], rounds: int) -> None:
        """From now on, records of a cell that are not of its rounds and domains count as damaged."""
        self._expected[key] = (frozenset(map(tuple, domains)), rounds)

    def read(self, key: str) -> list[Record]:
        """The intact records of a cell, newest last; `damage` tells of others."""
        path = self._path(key)
        content = content_of(path) or b""
        found = [record for record, _ in self._intact(content, key)]
        lines = content.count(b"\n") + (not content.endswith(b"\n") and bool(content))
        self.damage.pop(path, None)
        if len(found) < lines:
            self.damage[path] = (
                f"{path}: {lines - len(found)} of {lines} records are torn or damaged and were left out; the "
                "next run computes them again."
            )
        return found

    def description(self, key: str) -> Record | None:
        """What is known of a whole cell; None if that was never written, or is damaged."""
        path = self._description_path(key)
        content = content_of(path)
        if content is None:
            return None
        found = next((record for record, _ in intact(content, key, result_format.DESCRIPTION)), None)
        if found is None:
            self.damage[path] = f"{path}: is damaged and was left out; the next run writes it again."
        return found

    def status(self, cell: Cell) -> str:
        """`done`, `unsupported`, `failed`, `missing`, or `stale` if other code has made its records."""
        records = self.read(cell.key)
        if made_by_other_code(records, cell):
            return "stale"
        return cell_status(records, cell.records_expected)

    # Writing -----------------------------------------------------------------------------------

    def open(self, cells: Sequence[Cell]) -> Lock:
        """Take the folder for one run and write down what it is about."""
        with writing(self.folder, "Choose another --results folder."):
            self.make_folders()
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

    def make_folders(self) -> None:
        """Make what is not there yet."""
        for folder in (self.records_folder, self.cells_folder):
            plain_folder(folder).mkdir(parents=True, exist_ok=True)

    def keep(self, key: str, wanted: Sequence[Record]) -> None:
        """Drop all records of a cell but these, because the others are about to be computed anew."""
        path = self._path(key)
        with writing(path):
            if wanted:
                write_atomically(path, b"".join(map(encode, wanted)))
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
                write_atomically(self._description_path(key), encode(described), sync=False)

    def append(self, key: str, records: Sequence[Record], sync: bool = True) -> None:
        """Add records of one cell, and see all of its records on the disk before going on if asked to."""
        path = self._path(key)
        with writing(path), open(path, "ab") as file:
            file.write(b"".join(map(encode, records)))
            file.flush()
            if sync:
                os.fsync(file.fileno())

    def neighbours(self) -> list[ResultStore]:
        """The other benchmarks of the results folder, the one that ran last first."""
        results, own = self.folder.parent, self.folder.name
        names = [name for name in benchmarks(results) if name != own and NAME.fullmatch(name)]
        return [ResultStore(results, name) for name in names if not (results / name).is_symlink()]

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
        content = content_of(path) or b""
        sound = b"".join(line for _, line in self._intact(content, cell.key))
        if sound == content:
            return None
        aside = path.with_suffix(f".damaged-{int(time.time())}")
        with writing(path):
            os.replace(path, aside)
            write_atomically(path, sound)
        return f"{path.name}: a damaged record was set aside as {aside.name} and is computed again"

    def write_manifest(self, cells: Sequence[Record]) -> None:
        """Write down which cells the folder is about; those of earlier runs with records are kept apart."""
        from tta_bench import __version__

        for cell in cells:
            self.expect(cell["key"], cell["domains"], cell["rounds"])
        told = {"format": FORMAT, "version": __version__, "cells": cells}
        told |= {"earlier": earlier} if (earlier := self._left({cell["key"] for cell in cells})) else {}
        write_atomically(plain_file(self.folder, MANIFEST), as_json(told, indent=1))

    def _left(self, keys: set[str]) -> list[Record]:
        """The cells of the manifest so far that have records and are not among some keys."""
        try:
            known = self.manifest()
        except UserError:  # none yet, or a damaged one that is about to be replaced
            return []
        cells = [*known["cells"], *known.get("earlier", [])]
        return [cell for cell in cells if cell["key"] not in keys and self._path(cell["key"]).exists()]

    def _refuse_other_format(self) -> None:
        """Refuse to write into a folder of another format; a damaged manifest is rewritten."""
        path = plain_file(self.folder, MANIFEST)
        content = content_of(path)
        if content is not None:
            refuse_other_format(path, content)

    def fits(self, record: Record) -> bool:
        """Whether a record is of a round and domain that its cell has, as far as the cell is known."""
        expected = self._expected.get(record["key"])
        if expected is None or "round" not in record:
            return True
        domains, rounds = expected
        return record["round"] <= rounds and (record.get("corruption"), record.get("severity")) in domains

    def _intact(self, content: bytes, key: str) -> Iterator[tuple[Record, bytes]]:
        found = intact(content, key, result_format.line_format(key))
        return ((record, line) for record, line in found if self.fits(record))

    def _description_path(self, key: str) -> Path:
        return plain_file(self.cells_folder, plain_name(key, KEY, self.folder, "a cell's key") + ".json")

    def _path(self, key: str) -> Path:
        return plain_file(self.records_folder, plain_name(key, KEY, self.folder, "a cell's key") + ".jsonl")


def describe(cell: Cell) -> Record:
    """A cell as the results folder tells it: its identity, its names, its place, its method's facts."""
    return dataclasses.asdict(cell) | {
        "code": cell.code,
        "bits": cell.bits,
        "records_expected": cell.records_expected,
        "variant": str(cell.method.params.get("variant", "")),
        "backprop": cell.method.make().backprop,
    }


def made_by_other_code(records: Sequence[Record], cell: Cell) -> bool:
    """Whether any of a cell's records was computed by other code than its plugins have now."""
    return any(record["code"] != cell.code for record in records)


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


def refuse_other_format(path: Path, content: bytes) -> None:
    """An error if a results folder was written by a version that names cells differently."""
    try:
        manifest = from_json(content)
    except ValueError:  # damaged, which is another problem
        return
    found = manifest.get("format", 1) if isinstance(manifest, dict) else FORMAT
    if found != FORMAT:
        raise UserError(
            f"{path}: the folder has format {found}, and this version reads and writes format {FORMAT}, in "
            "which cells have other keys. Choose another --results folder, or use the version that wrote it."
        )


def benchmarks(results: Path) -> list[str]:
    """Names of the benchmarks in a results folder, the one that ran last first."""
    found = sorted(results.glob(f"*/{MANIFEST}"), key=lambda path: os.lstat(path).st_mtime, reverse=True)
    return [path.parent.name for path in found]


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
    partial.unlink(missing_ok=True)  # of a dead process with the same number
    try:
        with open(partial, "xb") as file:
            file.writelines(parts)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
