"""Byte counts on disk: a count takes longer than a small domain, and is the same until code changes."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from pathlib import Path

from tta_bench.data.cache import folder
from tta_bench.memory import MemoryReport


def kept(facts: str, plugins: Iterable[type], count: Callable[[], MemoryReport]) -> MemoryReport:
    """The report on `facts`, counted unless that was done before with the very same code."""
    packages = {"tta_bench", *(plugin.__module__.partition(".")[0] for plugin in plugins)}
    code = [version("torch"), version("timm"), *(_code(package) for package in sorted(packages))]
    name = hashlib.sha256(json.dumps([facts, *code]).encode()).hexdigest()[:32]
    path = folder() / "bytes" / f"{name}.json"
    with suppress(OSError, ValueError, TypeError):  # not there, or damaged
        return MemoryReport(**json.loads(path.read_text()))
    report = count()
    partial = path.with_suffix(f".{os.getpid()}.partial")
    with suppress(OSError):  # a cache that cannot be written costs time, no more
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(asdict(report)))
        os.replace(partial, path)
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
