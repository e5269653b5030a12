"""Where data lies that is not part of the package."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "TTA_BENCH_DATA"


def locate(root: str, name: str) -> Path | None:
    """`root` if one is given, else the folder `name` in $TTA_BENCH_DATA, else nothing."""
    if root:
        return Path(root).expanduser()
    base = os.environ.get(VARIABLE)
    return Path(base).expanduser() / name if base else None


def remedy(name: str) -> str:
    """What to do when there is no such place."""
    return f"Set data.root to it, or ${VARIABLE} to a folder that has it as {name}."
