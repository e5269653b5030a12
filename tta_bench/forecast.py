"""Cells → the tidy frame they would fill, before any has run: bytes, and what cannot run at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tta_bench import accounts, frame
from tta_bench.errors import Unsupported
from tta_bench.grid import Cell
from tta_bench.store import Record, describe

if TYPE_CHECKING:
    from pandas import DataFrame


def forecast(cells: Sequence[Cell]) -> DataFrame:
    """A frame of cells that are still to run; needs neither weights nor data."""
    known: dict[str, Record] = {}
    for cell in cells:
        if (same := accounts.facts(cell)) not in known:
            known[same] = _facts(cell)
    return frame.planned([(describe(cell), known[accounts.facts(cell)]) for cell in cells])


def _facts(cell: Cell) -> Record:
    try:
        report = accounts.of(cell)
    except Unsupported as reason:
        return {"status": "unsupported", "reason": str(reason)}
    return {
        "status": "pending",
        "reason": "",
        "memory_bytes": report.memory_bytes,
        "packed_bytes": report.packed_bytes,
    }
