"""Numbers as the readers' formats print them: written once, so that they agree."""

from __future__ import annotations

from tta_bench.layouts.types import printed
from tta_bench.table import Column, Entry

SMALLEST_P = 0.001  # of those that are printed


def number(entry: Entry, column: Column) -> tuple[str, str]:
    """Mean and spread as printed; the spread is empty where there is none."""
    if entry.value is None:
        return "", ""
    if entry.rank and column.kind == "rank":
        return entry.rank, ""
    spread = entry.interval
    return printed(entry.value, column.kind), "" if spread is None else printed(spread, column.kind)


def beside(entry: Entry, column: Column) -> str:
    """What stands beside a mean: its spread, or of a difference the interval and the p-value."""
    if entry.low is not None and entry.high is not None and entry.p is not None:
        low, high = (printed(bound, column.kind) for bound in (entry.low, entry.high))
        return f"[{low}, {high}] {f'p={entry.p:.3f}' if entry.p >= SMALLEST_P else f'p<{SMALLEST_P}'}"
    spread = number(entry, column)[1]
    return f"± {spread}" if spread else ""
