"""Checkpoints on disk, one file a cell: a digest, a line of JSON that says where, the encoded state.

    results/<name>/checkpoints/<key>.checkpoint

The line also holds the records that the log may not have yet, so that one atomic write saves a state and the
results that led to it: a process killed between the two writes loses neither. Only the driver writes them, by
atomic rename, with the last one beside it until the next is complete; a file whose digest does not fit is set
aside.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from tta_bench.exchange import Checkpoint
from tta_bench.plain_files import KEY, content_of, plain_file, plain_name
from tta_bench.result_format import HEADER
from tta_bench.store import Record, write_atomically, writing

DIGEST_BYTES = 64


class Damaged(Exception):
    """A checkpoint that cannot be trusted; the text names the file and what became of it."""


class Checkpoints:
    """The checkpoints of one results folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "checkpoints"

    def save(self, checkpoint: Checkpoint, unlogged: Sequence[Record] = (), sync: bool = True) -> None:
        """Put a checkpoint in the place of the cell's last one; `sync` waits for the disk."""
        where = {"key": checkpoint.key, "place": checkpoint.place, "batch": checkpoint.batch}
        where |= {"unlogged": list(unlogged)}
        line = json.dumps(where).encode() + b"\n"
        path = self._path(checkpoint.key)
        with writing(path):
            self.folder.mkdir(exist_ok=True)
            # To rename over a file makes ext4 wait for the disk, which takes longer than a tiny domain.
            last = self._path(checkpoint.key, ".last")
            with suppress(FileNotFoundError):
                os.replace(path, last)
            write_atomically(path, _digest(line, checkpoint.content), line, checkpoint.content, sync=sync)
            last.unlink(missing_ok=True)

    def load(self, key: str) -> tuple[Checkpoint, list[Record]] | None:
        """The cell's last checkpoint, if there is one, and the records that the log may not have.

        Raises Damaged once it has set a bad one aside.
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
                    return Checkpoint(**where, content=state), unlogged
        aside = path.with_suffix(f".damaged-{int(time.time())}")
        os.replace(path, aside)
        raise Damaged(f"{path.name}: a damaged checkpoint was set aside as {aside.name}")

    def remove(self, key: str) -> None:
        """Delete a cell's checkpoint, because the cell is done or starts anew."""
        for path in (self._path(key), self._path(key, ".last")):
            path.unlink(missing_ok=True)

    def _path(self, key: str, suffix: str = ".checkpoint") -> Path:
        return plain_file(self.folder, plain_name(key, KEY, self.folder, "a cell's key") + suffix)


def _digest(*parts: bytes) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest().encode()
