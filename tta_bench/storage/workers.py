"""`workers.json`: what the workers of a run over Ray do at the moment; `status --watch` shows it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from tta_bench import files
from tta_bench.storage import format
from tta_bench.storage.record import Record
from tta_bench.terminal import spell

WORKERS = "workers.json"


def write(folder: Path, workers: Sequence[Record]) -> None:
    """Write what each busy worker does; without any there is no file."""
    path = files.plain_file(folder, WORKERS)
    with files.write_errors(path, "Make room, and run the same command again."):
        if workers:
            files.write_atomically(path, json.dumps(list(workers)).encode(), sync=False)
        else:
            path.unlink(missing_ok=True)


def read(folder: Path, since: float) -> list[Record]:
    """What the workers of a run that began at `since` do; none if the file is older, or damaged."""
    path = files.plain_file(folder, WORKERS)
    content = files.content_of(path)
    try:
        if content is None or path.stat().st_mtime < since:
            return []
        found: list[Record] = format.WORKERS.validate_json(content)
    except (ValidationError, FileNotFoundError):
        return []
    return found


def shown(workers: Sequence[Record], now: float) -> list[Record]:
    """Node, device and work of each worker, and for how long it has been at it, as rows for people."""
    return [
        {
            "worker on": row["node"],
            "device": row["device"],
            "for": spell(max(now - row["since"], 0.0)),
            "works on": row["work"],
        }
        for row in workers
    ]
