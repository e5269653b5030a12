"""States of cells in the metrics of a run, also of cells that several workers share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tta_bench import config, grid
from tta_bench.execution.messages import Delivery
from tta_bench.execution.progress import RunProgress
from tta_bench.execution.ray.metrics import MeteredRecorder
from tta_bench.execution.recorder import ResultRecorder
from tta_bench.grid import Cell, row_of
from tta_bench.planning.sharing import ResolvedCell, resolve
from tta_bench.planning.tasks import Task
from tta_bench.storage.record import Record
from tta_bench.storage.store import ResultStore


@pytest.fixture
def cell(write_yaml: Callable[..., Path]) -> Cell:
    """A cell of two domains in one round, whose domains may be computed by different workers."""
    stream = {"corruptions": ["gaussian_noise", "fog"], "rounds": 1, "batch_size": 16, "limit": 40}
    return grid.expand(config.load(write_yaml(methods=["source"], quantizers=["fp32"], stream=stream)))[0]


@pytest.fixture
def metered(tmp_path: Path, cell: Cell) -> Any:
    store, progress = ResultStore(tmp_path, "metered"), RunProgress(quiet=True)
    lock = store.open([row_of(cell)])
    with progress.running([cell], 0):
        yield MeteredRecorder(ResultRecorder(store, progress, []))
    lock.release()


def part(resolved: ResolvedCell, *segments: int) -> Task:
    return replace(Task((resolved,)), segments=frozenset(segments))


def record(cell: Cell, corruption: str, status: str = "ok") -> Delivery:
    made: Record = {"key": cell.key, "status": status, "code": cell.code, "round": 1, "seconds": 1.0}
    made |= {"corruption": corruption, "severity": 5, "images": 40, "correct": 20, "reason": "broken"}
    return Delivery(cell.key, [made])


def states(metered: MeteredRecorder) -> dict[str, int]:
    return {state: count for state, count in metered.counts.items() if count}


def test_a_cell_is_done_when_all_its_parts_are(metered: MeteredRecorder, cell: Cell) -> None:
    resolved = resolve(cell)
    metered.started(part(resolved, 0))
    metered.started(part(resolved, 1))
    assert states(metered) == {"running": 1}
    metered.delivered(record(cell, "gaussian_noise"))
    assert states(metered) == {"running": 1}, "the other worker is not done"
    metered.delivered(record(cell, "fog"))
    assert states(metered) == {"done": 1}


def test_a_part_that_ends_later_does_not_hide_a_failure(metered: MeteredRecorder, cell: Cell) -> None:
    resolved = resolve(cell)
    metered.started(part(resolved, 0))
    metered.delivered(record(cell, "gaussian_noise", "failed"))
    metered.started(part(resolved, 1))
    metered.delivered(record(cell, "fog"))
    assert states(metered) == {"failed": 1}
