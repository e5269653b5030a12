"""The results folder of one benchmark: append-only, checksummed records, one file for each cell.

    results/<name>/benchmark.json      the cells of the last run, see `manifest`
    results/<name>/cells/<key>.json    the description of a cell: bytes, code, environments
    results/<name>/records/<key>.jsonl its records: a line for each domain and round, see `record`
    results/<name>/checkpoints/        unfinished cells, see `checkpoints`
    results/<name>/lock                held by the run that writes

The description has a file of its own because it is rewritten, while records are only appended. Every line
ends with a checksum, so that a torn or edited line is noticed. The folder may come from anybody: everything
that is read is checked against `format`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tta_bench import files
from tta_bench.errors import UserError
from tta_bench.storage import format, manifest
from tta_bench.storage.format import LEDGER
from tta_bench.storage.lock import Lock
from tta_bench.storage.record import (
    Record,
    cell_status,
    collapsed,
    encode,
    expanded,
    intact,
    round_and_domain,
    visits_in,
    visits_of,
)

if TYPE_CHECKING:  # reading results must not import torch, which the plugins of cells do
    from tta_bench.grid import Cell


class ResultStore:
    """Reads and writes the folder of one benchmark; only the driver of a run writes."""

    def __init__(self, results: Path, name: str) -> None:
        plain = files.plain_name(name, files.NAME, results, "a benchmark's name")
        self.folder = files.plain_folder(results / plain)
        self.damage: dict[Path, str] = {}  # files with damaged lines, and how many
        self._expected: dict[str, tuple[list[frozenset[tuple[Any, ...]]], int]] = {}  # visits, rounds; by key
        self.records_folder = self.folder / "records"
        self.cells_folder = self.folder / "cells"

    # Reading -----------------------------------------------------------------------------------

    def manifest(self) -> Record:
        """The cells of the last run, in order."""
        found = manifest.load(self.folder)
        self._expect_all([*found["cells"], *found.get("earlier", [])])
        return found

    def earlier(self) -> list[Record]:
        """The complete cells of earlier runs that are not part of the last run."""
        found: list[Record] = self.manifest().get("earlier", [])
        return [c for c in found if cell_status(self.read(c["key"]), c["records_expected"]) == "done"]

    def expect(self, key: str, visits: Iterable[Iterable[tuple[Any, ...]]], rounds: int) -> None:
        """From now on, records of a cell with other rounds or visits count as damaged; see `visits_of`."""
        self._expected[key] = (list(map(frozenset, visits)), rounds)

    def read(self, key: str) -> list[Record]:
        """The intact records of a cell, newest last; `damage` names the file if there are others."""
        lines = self.read_lines(key)
        return lines if key.startswith(LEDGER) else [each for line in lines for each in expanded(line)]

    def read_lines(self, key: str) -> list[Record]:
        """The intact records of a cell, as `read` has them, but one for all rounds that repeat each other."""
        path = self._path(key)
        content = files.content_of(path) or b""
        sound = [record for record, _ in self._intact(content, key)]
        lines = content.count(b"\n") + (not content.endswith(b"\n") and bool(content))
        self.damage.pop(path, None)
        if len(sound) < lines:
            self.damage[path] = (
                f"{path}: {lines - len(sound)} of {lines} lines are torn or damaged and were left out; "
                "the next run computes their records again."
            )
        return sound

    def description(self, key: str) -> Record | None:
        """The description of a cell; None if it was never written, or is damaged."""
        path = self._description_path(key)
        content = files.content_of(path)
        if content is None:
            return None
        found = next((record for record, _ in intact(content, key, format.DESCRIPTIONS)), None)
        if found is None:
            self.damage[path] = f"{path}: is damaged and was left out; the next run writes it again."
        return found

    def status(self, cell: Cell) -> str:
        """`done`, `unsupported`, `failed`, `missing`, or `stale` if other code computed its records."""
        records = self.read(cell.key)
        if made_by_other_code(records, cell):
            return "stale"
        return cell_status(records, cell.records_expected)

    def fits(self, record: Record) -> bool:
        """Whether a record has rounds and a domain of its cell, if the cell is known."""
        expected = self._expected.get(record["key"])
        if expected is None or (record["status"] != "ok" and "round" not in record):
            return True
        visits, rounds = expected
        numbers = [record["round"]] if "round" in record else record["rounds"]
        if record["status"] != "ok" and "corruption" not in record:  # of a segment with several domains
            return max(numbers) <= rounds
        _, *place = round_and_domain(record)
        return max(numbers) <= rounds and all(tuple(place) in visits_in(visits, each) for each in numbers)

    # Writing -----------------------------------------------------------------------------------

    def open(self, rows: Sequence[Record]) -> Lock:
        """Lock the folder for a run, and write its manifest: a row for each cell."""
        with files.write_errors(self.folder, "Choose another --results folder."):
            self.make_folders()
            lock = Lock(self.folder / "lock")
            try:
                manifest.refuse_other_format(self.folder)
                for torn in self.folder.rglob(f"*{files.PARTIAL}"):  # left by a run that was killed
                    torn.unlink()
                self.write_manifest(rows)
            except BaseException:
                lock.release()
                raise
        return lock

    def make_folders(self) -> None:
        """Create the folders that do not exist yet."""
        for folder in (self.records_folder, self.cells_folder):
            files.plain_folder(folder).mkdir(parents=True, exist_ok=True)

    def write_manifest(self, rows: Sequence[Record]) -> None:
        """Write a row for each cell of a run; cells of earlier runs stay if they have records."""
        self._expect_all(rows)
        manifest.save(self.folder, rows, self._left({row["key"] for row in rows}))

    def append(self, key: str, records: Sequence[Record], sync: bool = True) -> None:
        """Add records of one cell; with `sync`, wait until all of its records are on the disk."""
        path = self._path(key)
        with disk_errors(path), open(path, "ab") as file:
            file.write(_lines(key, records))
            file.flush()
            if sync:
                os.fsync(file.fileno())

    def keep(self, key: str, wanted: Sequence[Record]) -> None:
        """Delete all records of a cell but these; the others are computed again."""
        path = self._path(key)
        with disk_errors(path):
            if wanted:
                files.write_atomically(path, _lines(key, wanted))
            else:
                path.unlink(missing_ok=True)

    def forget(self, key: str) -> None:
        """Delete the records and the description of a cell."""
        self.keep(key, [])
        self._description_path(key).unlink(missing_ok=True)

    def describe(self, key: str, news: Record) -> None:
        """Add to the description of a cell; every worker that computes a part of it sends one."""
        known = self.description(key)
        described = merged_descriptions(known, {"key": key} | news)
        if described != known:
            with disk_errors(self._description_path(key)):
                files.write_atomically(self._description_path(key), encode(described), sync=False)

    def neighbours(self) -> list[ResultStore]:
        """The other benchmarks of the results folder, the one that ran last first."""
        results, own = self.folder.parent, self.folder.name
        names = [name for name in manifest.benchmarks(results) if name != own and files.NAME.fullmatch(name)]
        return [ResultStore(results, name) for name in names if not (results / name).is_symlink()]

    def take_over(self, cell: Cell, neighbours: Sequence[ResultStore]) -> str | None:
        """Copy a cell without records here from a neighbour where it is done; return the neighbour's name.

        Cells with the same key have the same numbers in every benchmark.
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
        """Rename a damaged file and keep its intact lines; return a note that names the file."""
        path = self._path(cell.key)
        content = files.content_of(path) or b""
        sound = b"".join(line for _, line in self._intact(content, cell.key))
        if sound == content:
            return None
        aside = path.with_suffix(f".damaged-{int(time.time())}")
        with disk_errors(path):
            os.replace(path, aside)
            files.write_atomically(path, sound)
        return f"{path.name}: a damaged record was set aside as {aside.name} and is computed again"

    # Helpers -----------------------------------------------------------------------------------

    def _expect_all(self, rows: Iterable[Record]) -> None:
        for row in rows:
            self.expect(row["key"], visits_of(row), row["rounds"])

    def _left(self, keys: set[str]) -> list[Record]:
        """The cells of the present manifest that have records and other keys than these."""
        try:
            known = self.manifest()
        except UserError:  # none yet, or a damaged one that is about to be replaced
            return []
        cells = [*known["cells"], *known.get("earlier", [])]
        return [cell for cell in cells if cell["key"] not in keys and self._path(cell["key"]).exists()]

    def _intact(self, content: bytes, key: str) -> Iterator[tuple[Record, bytes]]:
        """The record of each intact line, with the line's bytes."""
        known = format.EVENTS if key.startswith(LEDGER) else format.RECORDS
        return ((record, line) for record, line in intact(content, key, known) if self.fits(record))

    def _description_path(self, key: str) -> Path:
        return files.plain_file(self.cells_folder, f"{self._plain(key)}.json")

    def _path(self, key: str) -> Path:
        return files.plain_file(self.records_folder, f"{self._plain(key)}.jsonl")

    def _plain(self, key: str) -> str:
        return files.plain_name(key, files.KEY, self.folder, "a cell's key")


def _lines(key: str, records: Sequence[Record]) -> bytes:
    """Records as the file of a cell holds them."""
    return b"".join(map(encode, records if key.startswith(LEDGER) else collapsed(records)))


def made_by_other_code(records: Sequence[Record], cell: Cell) -> bool:
    """Whether any of a cell's records was computed by other code than its plugins have now."""
    return any(record["code"] != cell.code for record in records)


def merged_descriptions(known: Record | None, news: Record) -> Record:
    """Two descriptions of one cell as one: newer values replace older ones, and all environments stay."""
    known = known or {}
    environments = known.get("environments", {}) | news.get("environments", {})
    told = {name: value for name, value in news.items() if value is not None}
    return known | told | {"environments": environments}


def disk_errors(path: Path) -> AbstractContextManager[None]:
    """Turn an OSError into a message that a run can be continued."""
    return files.write_errors(path, "Earlier records are intact; make room and run the same command again.")
