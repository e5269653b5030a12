"""Cells → the tidy frame they would fill, before any has run: bytes, and what cannot run at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tta_bench import frame, memory
from tta_bench.errors import Unsupported
from tta_bench.grid import Cell
from tta_bench.plan import make_method
from tta_bench.store import Record, describe

if TYPE_CHECKING:
    from pandas import DataFrame


def forecast(cells: Sequence[Cell]) -> DataFrame:
    """A frame of cells that are still to run; needs neither weights nor data."""
    known: dict[tuple[str, ...], Record] = {}
    for cell in cells:
        if _same(cell) not in known:
            known[_same(cell)] = _facts(cell)
    return frame.planned([(describe(cell), known[_same(cell)]) for cell in cells])


def _same(cell: Cell) -> tuple[str, ...]:
    """What bytes depend on."""
    settings = {k: v for k, v in cell.method.params.items() if k != "seed"}
    return (str(cell.model), str(cell.quantizer), cell.method.use, str(settings), str(cell.batch_size))


def _facts(cell: Cell) -> Record:
    try:
        report = memory.account(
            cell.model.make("models"),
            cell.quantizer.make("quantizers"),
            make_method(cell),
            cell.batch_size,
        )
    except Unsupported as reason:
        return {"status": "unsupported", "reason": str(reason)}
    return {
        "status": "pending",
        "reason": "",
        "memory_bytes": report.memory_bytes,
        "packed_bytes": report.packed_bytes,
    }
