"""An answer of a command: text for people, data for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tabulate import tabulate

from tta_bench.terminal import printable


@dataclass(frozen=True, repr=False)
class Description:
    """An answer as text for people and as data for programs; at a prompt it shows its text."""

    text: str
    data: Any

    def __repr__(self) -> str:
        return self.text


def columns(rows: Sequence[dict[str, Any]]) -> str:
    """Rows with the same keys as aligned text columns."""
    shown = [{name: printable(v) if isinstance(v, str) else v for name, v in row.items()} for row in rows]
    return tabulate(shown, headers="keys", tablefmt="simple", disable_numparse=True)
