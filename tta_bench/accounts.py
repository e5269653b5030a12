"""Byte counts of cells, kept on disk: a count takes longer than a small domain, and is the same until code
changes."""

from __future__ import annotations

import hashlib
import json
import sys
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from pathlib import Path

from tta_bench.data.cache import folder
from tta_bench.grid import Cell
from tta_bench.memory import MemoryReport, account
from tta_bench.store import write_atomically


def facts(cell: Cell) -> str:
    """What a cell's bytes depend on: not on the seed, which is among a method's parameters."""
    params = {key: value for key, value in cell.method.params.items() if key != "seed"}
    return f"{cell.model} {cell.quantizer} {cell.method.use} {params} {cell.batch_size}"


def of(cell: Cell) -> MemoryReport:
    """The byte counts of a cell's step, counted unless that was done before with the very same code."""
    model, quantizer = cell.model.make("models"), cell.quantizer.make("quantizers")
    method = cell.method.make("methods")
    packages = {type(plugin).__module__.partition(".")[0] for plugin in (model, quantizer, method)}
    code = [version("torch"), version("timm"), *map(_code, sorted(packages | {"tta_bench"}))]
    name = hashlib.sha256(json.dumps([facts(cell), *code]).encode()).hexdigest()[:32]
    path = folder() / "bytes" / f"{name}.json"
    with suppress(OSError, ValueError, TypeError):  # not there, or damaged
        return MemoryReport(**json.loads(path.read_text()))
    report = account(model, quantizer, method, cell.batch_size)
    with suppress(OSError):  # a cache that cannot be written costs time, no more
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(asdict(report)).encode(), sync=False)
    return report


@cache
def _code(package: str) -> str:
    """What changes whenever a source file of a package does."""
    origin = Path(sys.modules[package].__file__ or "")
    files = sorted(origin.parent.rglob("*.py")) if origin.name == "__init__.py" else [origin]
    marks = [
        (str(file.relative_to(origin.parent)), file.stat().st_size, file.stat().st_mtime_ns) for file in files
    ]
    return hashlib.sha256(json.dumps(marks).encode()).hexdigest()
