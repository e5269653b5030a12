"""Numbers as the readers' formats print them: written once, so that they agree."""

from __future__ import annotations

from tta_bench.layouts.types import printed
from tta_bench.table import Column, Entry


def number(entry: Entry, column: Column) -> tuple[str, str]:
    """Mean and spread as printed; the spread is empty where there is none."""
    if entry.value is None:
        return "", ""
    spread = entry.std if entry.interval is None else entry.interval
    return printed(entry.value, column.kind), "" if spread is None else printed(spread, column.kind)
