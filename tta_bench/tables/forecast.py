"""The tidy frame of cells before they run: their memory, and which are unsupported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tta_bench.errors import Unsupported
from tta_bench.footprint import cache
from tta_bench.grid import Cell, row_of
from tta_bench.storage.record import Record
from tta_bench.tables import frame

if TYPE_CHECKING:
    from pandas import DataFrame


def forecast(cells: Sequence[Cell]) -> DataFrame:
    """The frame of pending cells; needs neither weights nor data."""
    known: dict[str, Record] = {}
    for cell in cells:
        if (same := cache.facts(cell)) not in known:
            known[same] = _facts(cell)
    return frame.planned([(row_of(cell), known[cache.facts(cell)]) for cell in cells])


def _facts(cell: Cell) -> Record:
    try:
        report = cache.of(cell)
    except Unsupported as reason:
        return {"status": "unsupported", "reason": str(reason)}
    return {
        "status": "pending",
        "reason": "",
        "memory_bytes": report.memory_bytes,
        "packed_bytes": report.packed_bytes,
    }
