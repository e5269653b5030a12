"""Plugins that misbehave, a module for each kind; `install` makes some of them known to one test.

They are not installed for all tests: whoever goes through all plugins would run into them.
"""

from __future__ import annotations

import shutil
from pathlib import Path

HERE = Path(__file__).parent


def install(folder: Path, entry_points: str) -> Path:
    """A folder that is an installed package, `misbehaving 1.0`, to whoever has it on the path.

    Entry points are lines as in `entry_points.txt`, with modules as `misbehaving.MODULE:NAME`.
    """
    shutil.copytree(HERE, folder / "misbehaving", ignore=shutil.ignore_patterns("__pycache__"))
    facts = folder / "misbehaving-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: misbehaving\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(entry_points)
    return folder
