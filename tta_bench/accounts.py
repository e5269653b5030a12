"""Byte counts of cells, kept on disk: a count takes longer than a small domain, and is the same until code
changes."""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path

from tta_bench import cache
from tta_bench.grid import Cell
from tta_bench.memory import MemoryReport, account

KIND = "bytes"  # of cache entries


def facts(cell: Cell) -> str:
    """What a cell's bytes depend on: not on the seed, which is among a method's parameters."""
    params = {key: value for key, value in cell.method.params.items() if key != "seed"}
    method = replace(cell.method, params=params)
    return f"{cell.model.digest} {cell.quantizer.digest} {method.digest} {cell.batch_size}"


def of(cell: Cell) -> MemoryReport:
    """The byte counts of a cell's step, counted unless that was done before with the very same code."""
    code = [version("torch"), version("timm"), _harness()]
    name = hashlib.sha256(json.dumps([facts(cell), *code]).encode()).hexdigest()[:32]
    return cache.load_or_make(
        KIND,
        f"{name}.json",
        lambda: account(cell.model.make(), cell.quantizer.make(), cell.method.make(), cell.batch_size),
        lambda report: json.dumps(asdict(report)).encode(),
        lambda content: MemoryReport(**json.loads(content)),
    )


@functools.cache
def _harness() -> str:
    """SHA-256 over the source code of the harness, which counts; that of plugins is in their digests."""
    files = sorted(Path(__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
