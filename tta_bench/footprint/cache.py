"""Byte counts of cells, cached on disk: counting takes longer than a small domain, and the counts change
only with the code."""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path

from tta_bench.cache import entries
from tta_bench.footprint.account import MemoryReport, account
from tta_bench.grid import Cell

KIND = "bytes"  # of cache entries


def facts(cell: Cell) -> str:
    """What a cell's byte counts depend on; the seed, a parameter of some methods, is left out."""
    params = {key: value for key, value in cell.method.params.items() if key != "seed"}
    method = replace(cell.method, params=params)
    return f"{cell.model.digest} {cell.quantizer.digest} {method.digest} {cell.step_images}"


def of(cell: Cell) -> MemoryReport:
    """The byte counts of a cell's step, from the cache if the same code has counted them before."""
    code = [version("torch"), version("timm"), _harness()]
    name = hashlib.sha256(json.dumps([facts(cell), *code]).encode()).hexdigest()[:32]
    return entries.load_or_make(
        KIND,
        f"{name}.json",
        lambda: account(cell.model.make(), cell.quantizer.make(), cell.method.make(), cell.step_images),
        lambda report: json.dumps(asdict(report)).encode(),
        lambda content: MemoryReport(**json.loads(content)),
    )


@functools.cache
def _harness() -> str:
    """SHA-256 over the source code of the harness; the code of plugins is in their digests."""
    files = sorted(Path(__file__).parents[1].rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
