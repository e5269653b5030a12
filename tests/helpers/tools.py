"""The scripts in tools/ as modules."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).parents[2] / "tools"


def load_tool(name: str) -> Any:
    """The module of a script, which finds the scripts beside it as it does when it is run."""
    if str(TOOLS) not in sys.path:
        sys.path.append(str(TOOLS))
    return importlib.import_module(name)
