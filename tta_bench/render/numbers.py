"""Numbers as the readers' formats print them: written once, so that they agree."""

from __future__ import annotations

from tta_bench.layouts.types import printed
from tta_bench.table import Column, Entry


def number(entry: Entry, column: Column) -> tuple[str, str]:
    """Mean and spread as printed; the spread is empty where there is none."""
    if entry.value is None:
        return "", ""
    std = "" if entry.std is None else printed(entry.std, column.kind)
    return printed(entry.value, column.kind), std
