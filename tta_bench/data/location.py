"""Where to find data that is not part of the package."""

from __future__ import annotations

import os
from pathlib import Path

from tta_bench.data.problems import BadData

VARIABLE = "TTA_BENCH_DATA"


def locate(root: str, name: str) -> Path | None:
    """`root` if it is given, else the folder `name` in $TTA_BENCH_DATA, else None."""
    if root:
        return Path(root).expanduser()
    base = os.environ.get(VARIABLE)
    return Path(base).expanduser() / name if base else None


def required(root: str, name: str, alternative: str = "") -> Path:
    """As `locate`, but BadData instead of None; `alternative` is a sentence about other data."""
    place = locate(root, name)
    if place is None:
        raise BadData(f"{name} is not part of the package. {remedy(name)} {alternative}".rstrip())
    return place


def remedy(name: str) -> str:
    """The remedy for missing data."""
    return f"Set data.root to its folder, or ${VARIABLE} to the folder that contains {name}."
