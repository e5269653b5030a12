"""The manifest of a results folder, `benchmark.json`: its format, and the cells of the last run, in order.

`earlier` holds the cells of previous runs that have records and are not part of the last one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import from_json

from tta_bench import __version__
from tta_bench.errors import UserError
from tta_bench.files import content_of, plain_file, write_atomically
from tta_bench.storage import format
from tta_bench.storage.record import Record, as_json

MANIFEST = "benchmark.json"
REMEDY = "Run the benchmark again to rewrite it, or get a new copy of the folder."


def load(folder: Path) -> Record:
    """The manifest of a results folder; an error if there is none, or a damaged one."""
    path = plain_file(folder, MANIFEST)
    content = content_of(path)
    if content is None:
        raise UserError(f"{path}: no such run. Start one with `tta-bench run`.")
    try:
        manifest: Record = format.MANIFEST_FORMAT.validate_json(content)
    except ValidationError as error:
        refuse_other_format(folder)
        found = [f"{path}: {text}." for text in format.problems(error)]
        raise UserError("\n".join([*found, REMEDY])) from None
    return manifest


def save(folder: Path, cells: Sequence[Record], earlier: Sequence[Record]) -> None:
    """Write the manifest of a results folder."""
    manifest = {"format": format.FORMAT, "version": __version__, "cells": cells}
    manifest |= {"earlier": earlier} if earlier else {}
    write_atomically(plain_file(folder, MANIFEST), as_json(manifest, indent=1))


def refuse_other_format(folder: Path) -> None:
    """An error if this version cannot read the folder; a missing or damaged manifest is rewritten."""
    path = plain_file(folder, MANIFEST)
    try:
        manifest = from_json(content_of(path) or b"")
    except ValueError:
        return
    found = manifest.get("format", 1) if isinstance(manifest, dict) else format.FORMAT
    if found not in format.READABLE:
        raise UserError(
            f"{path}: the folder has format {found}, and this version reads formats 2 and 3. Choose "
            "another --results folder, or use the version that wrote it."
        )


def benchmarks(results: Path) -> list[str]:
    """Names of the benchmarks in a results folder, the one that ran last first."""
    found = sorted(results.glob(f"*/{MANIFEST}"), key=lambda path: os.lstat(path).st_mtime, reverse=True)
    return [path.parent.name for path in found]
