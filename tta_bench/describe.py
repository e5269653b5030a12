"""An answer of the command line: for people as text, for machines as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tabulate import tabulate

from tta_bench.terminal import printable


@dataclass(frozen=True)
class Description:
    """The same facts twice."""

    text: str
    data: Any


def columns(rows: Sequence[dict[str, Any]]) -> str:
    """Rows of equal keys as aligned text columns."""
    shown = [{name: printable(v) if isinstance(v, str) else v for name, v in row.items()} for row in rows]
    return tabulate(shown, headers="keys", tablefmt="simple", disable_numparse=True)
