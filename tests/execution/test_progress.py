"""The estimate of the remaining time: sane from the first record on, on a clock of our own."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from rich.console import Console

from tta_bench import config, grid
from tta_bench.execution import progress as module
from tta_bench.execution.progress import RunProgress
from tta_bench.grid import Cell
from tta_bench.planning.tasks import passes, tasks
from tta_bench.planning.time_left import PlannedWork, TimeLeft, planned_work
from tta_bench.storage.record import Record

Write = Callable[..., Path]
SECONDS_OF_PASS = {"fp32": 0.1, "uniform": 0.4}
WAIT_SECONDS = 40.0  # for images, calibration and imports, before the first record


@pytest.fixture
def cells(write_yaml: Write) -> list[Cell]:
    """Cells of very different cost: a source that repeats, and methods with one, two and three passes."""
    return grid.expand(
        config.load(
            write_yaml(
                methods=["source", "lame", "shift", {"use": "foa", "k": 2}, "tent"],
                quantizers=["fp32", {"use": "uniform", "bits": "W8A8"}],
                stream={"corruptions": "imagenet-c-15", "rounds": 10, "batch_size": 8, "limit": 64},
            )
        )
    )


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    found = MagicMock(return_value=0.0)
    monkeypatch.setattr(module.time, "monotonic", found)
    return found


def deliveries(cells: list[Cell], clock: Any, progress: RunProgress) -> Iterator[float]:
    """Run the plan on one worker without computing; yields the time after each delivery."""
    clock.return_value += WAIT_SECONDS
    for task in tasks(cells):
        progress.task_started()
        for resolved in task.cells:
            progress.started(resolved.cell, 0)
        work, ran = planned_work([task]), set[int]()
        for position in range(max(each.positions for each in task.cells)):
            for each in task.cells:
                if position >= each.positions:
                    continue
                cost = SECONDS_OF_PASS[each.cell.quantizer.use] * work[each.key].passes_of_record
                fresh = not each.reads_features or (position not in ran and position < 15)
                clock.return_value += cost if fresh else 0.0
                ran.add(position)
                first: Record = {"key": each.key, "status": "ok", "seconds": cost}
                later = [first | {"repeats": 1}] * (len(each.recorded_with(position)) - 1)
                progress.records([first, *later])
                yield clock.return_value


def test_the_estimate_is_sane_from_the_first_record_on(cells: list[Cell], clock: Any) -> None:
    total = sum(task_seconds(cells))
    with (progress := RunProgress(quiet=True)).running(cells, 0):
        guesses = [(now, progress.time_left.seconds(now)) for now in deliveries(cells, clock, progress)]
    end = guesses[-1][0]
    assert end == pytest.approx(WAIT_SECONDS + total)
    _, first = guesses[0]
    assert first is not None
    assert 0.3 * total < first < 3 * total, "the wait before the first record is no pace"
    for now, left in guesses[len(guesses) // 2 :]:
        assert left == pytest.approx(end - now, rel=0.25, abs=4.0)
    assert guesses[-1][1] == pytest.approx(0, abs=1e-6)


def task_seconds(cells: list[Cell]) -> list[float]:
    costs = {cell.quantizer.digest: SECONDS_OF_PASS[cell.quantizer.use] for cell in cells}
    return [planned.passes * costs[planned.network[1]] for planned in planned_work(tasks(cells)).values()]


def test_the_plan_s_passes_are_those_of_the_plan_command(cells: list[Cell]) -> None:
    work = planned_work(tasks(cells))
    assert sum(planned.passes for planned in work.values()) == pytest.approx(passes(cells).executed, abs=1)


def test_plain_lines_state_no_time_before_the_first_record(cells: list[Cell], clock: Any) -> None:
    progress = RunProgress()
    progress.console = Console(file=io.StringIO(), width=200)
    with progress.running(cells, 0):
        clock.return_value += WAIT_SECONDS
        progress.prepared(1, 15)
        for _ in zip(range(40), deliveries(cells, clock, progress), strict=False):
            pass
    lines = progress.console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert "images 1/15" in lines[1]
    assert "left" not in lines[1]
    estimates = [line for line in lines[2:] if re.search(r"about [\d.]+ (s|min|h) left", line)]
    assert estimates


def test_a_cell_that_fails_leaves_no_time(cells: list[Cell], clock: Any) -> None:
    with (progress := RunProgress(quiet=True)).running(cells, 0):
        for _ in zip(range(10), deliveries(cells, clock, progress), strict=False):
            pass
        for cell in cells:
            progress.records([{"key": cell.key, "status": "failed"}])
        assert progress.time_left.seconds(clock.return_value) == pytest.approx(0, abs=1e-6)


def test_tasks_that_run_side_by_side_shorten_the_estimate(cells: list[Cell]) -> None:
    def first_guess(workers: int) -> float:
        estimate = TimeLeft(planned_work(tasks(cells)))
        for _ in range(workers):
            estimate.task_started()
        record: Record = {"status": "ok", "seconds": 1.0}
        estimate.progressed(cells[0].key, 1, [record], now=5.0)
        found = estimate.seconds(5.0)
        assert found is not None
        return found

    assert first_guess(4) == pytest.approx(first_guess(1) / 4)


def test_records_within_a_second_need_one_estimate(
    cells: list[Cell], clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock stands still, as it nearly does for thousands of workers."""
    asked, estimate = [], TimeLeft.seconds
    monkeypatch.setattr(TimeLeft, "seconds", lambda *given: asked.append(1) or estimate(*given))
    for terminal in (True, False):
        progress = RunProgress()
        progress.console = Console(file=io.StringIO(), width=200, force_terminal=terminal)
        clock.return_value += 100.0
        with progress.running(cells, 0):
            for cell in cells:
                progress.started(cell, 0)
                progress.records([{"key": cell.key, "status": "ok", "seconds": 1.0}])
    assert len(asked) <= 2


def test_an_estimate_costs_the_same_for_any_number_of_cells(cells: list[Cell]) -> None:
    read = []

    class Work(dict[str, PlannedWork]):
        def __getitem__(self, key: str) -> PlannedWork:
            read.append(key)
            return super().__getitem__(key)

    estimate = TimeLeft(Work(planned_work(tasks(cells))))
    estimate.progressed(cells[0].key, 1, [{"status": "ok", "seconds": 1.0}], now=0.0)
    read.clear()
    assert estimate.seconds(1.0)
    assert not read
    assert len(estimate.passes_left) == 2, "two networks"
