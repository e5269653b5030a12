"""Where things that can be made again are kept."""

from __future__ import annotations

import os
from pathlib import Path


def folder() -> Path:
    """$TTA_BENCH_CACHE, else $XDG_CACHE_HOME/tta-bench, else ~/.cache/tta-bench."""
    if chosen := os.environ.get("TTA_BENCH_CACHE"):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tta-bench"
