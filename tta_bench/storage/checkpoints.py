"""Checkpoints on disk, one file for each cell: a digest, a line of JSON with the position, the encoded state.

    results/<name>/checkpoints/<key>.checkpoint

The line also holds the records that may not be in the cell's file of records yet. So one atomic write saves
a state together with the results that led to it, and a process that is killed between the two files loses
neither. Only the driver writes checkpoints. The last one is kept until the next one is complete; a file with
a wrong digest is renamed and ignored.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from tta_bench.files import KEY, content_of, plain_file, plain_name, write_atomically
from tta_bench.storage.format import HEADER
from tta_bench.storage.record import Record, collapsed, expanded
from tta_bench.storage.store import disk_errors

DIGEST_BYTES = 64


@dataclass(frozen=True)
class Checkpoint:
    """A paused cell: its stream position and saved state. Positions and batches count from 0."""

    key: str
    position: int  # number of the domain, counted through all rounds
    batch: int  # the next batch of that domain
    content: bytes = field(repr=False)  # made by `codec.encode`


class DamagedCheckpoint(Exception):
    """A checkpoint with a wrong digest or content; the text names the file and its new name."""


class Checkpoints:
    """The checkpoints of one results folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "checkpoints"

    def save(self, checkpoint: Checkpoint, unlogged: Sequence[Record] = (), sync: bool = True) -> None:
        """Replace the cell's last checkpoint; with `sync`, wait until it is on the disk."""
        where = {"key": checkpoint.key, "place": checkpoint.position, "batch": checkpoint.batch}
        where |= {"unlogged": collapsed(unlogged)}
        line = json.dumps(where).encode() + b"\n"
        path = self._path(checkpoint.key)
        with disk_errors(path):
            self.folder.mkdir(exist_ok=True)
            # Renaming over an existing file makes ext4 wait for the disk: longer than a tiny domain takes.
            last = self._path(checkpoint.key, ".last")
            with suppress(FileNotFoundError):
                os.replace(path, last)
            write_atomically(path, _digest(line, checkpoint.content), line, checkpoint.content, sync=sync)
            last.unlink(missing_ok=True)

    def load(self, key: str) -> tuple[Checkpoint, list[Record]] | None:
        """The cell's last checkpoint, if any, and the records that may not be in its file of records.

        A damaged checkpoint is renamed, and raises DamagedCheckpoint.
        """
        path = self._path(key)
        content = content_of(path)
        if content is None:  # the run died while it wrote the next one
            path = self._path(key, ".last")
            content = content_of(path)
        if content is None:
            return None
        line, newline, state = content[DIGEST_BYTES:].partition(b"\n")
        if content[:DIGEST_BYTES] == _digest(line, newline, state):
            with suppress(ValidationError):
                where = HEADER.validate_json(line)
                unlogged = where.pop("unlogged")
                if {where["key"], *(record["key"] for record in unlogged)} == {key}:
                    records = [each for record in unlogged for each in expanded(record)]
                    return Checkpoint(key, where["place"], where["batch"], state), records
        aside = path.with_suffix(f".damaged-{int(time.time())}")
        os.replace(path, aside)
        raise DamagedCheckpoint(f"{path.name}: a damaged checkpoint was set aside as {aside.name}")

    def remove(self, key: str) -> None:
        """Delete a cell's checkpoint: the cell is done, or starts from the beginning."""
        for path in (self._path(key), self._path(key, ".last")):
            path.unlink(missing_ok=True)

    def _path(self, key: str, suffix: str = ".checkpoint") -> Path:
        return plain_file(self.folder, plain_name(key, KEY, self.folder, "a cell's key") + suffix)


def _digest(*parts: bytes) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest().encode()
