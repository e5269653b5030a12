"""`tta-bench status --watch`: a grid as it grows, from its results folder."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.storage.test_merge import Machine, result
from tta_bench import config, grid
from tta_bench.grid import Cell
from tta_bench.storage import workers
from tta_bench.storage.lock import Lock
from tta_bench.storage.status import FolderStatus, StatusReader
from tta_bench.storage.store import ResultStore
from tta_bench.storage.time_left import seconds_left
from tta_bench.storage.watch import headline, render, watch
from tta_bench.terminal import spell

Write = Callable[..., Path]


@pytest.fixture
def cells(write_yaml: Write) -> list[Cell]:
    """Source, BN-Adapt and a method with brackets in its name, each over two rounds of two domains."""
    methods = ["source", "bn-adapt", {"use": "tent", "name": "TENT [b]"}]
    return grid.expand(config.load(write_yaml(quantizers=["fp32"], methods=methods)))


@pytest.fixture
def machine(tmp_path: Path, cells: list[Cell]) -> Machine:
    return Machine(tmp_path, cells, "left")


def screen(view: FolderStatus, width: int = 120, height: int = 30) -> str:
    console = Console(file=io.StringIO(), width=width, height=height)
    console.print(render(view, None, console.size))
    return console.file.getvalue()  # type: ignore[attr-defined]


def at(view: FolderStatus, **facts: Any) -> FolderStatus:
    return FolderStatus(**(vars(view) | facts))


def test_states_records_and_accuracy(machine: Machine, cells: list[Cell]) -> None:
    lock = Lock(machine.store.folder / "lock")
    machine.run(cells[0], 0, 1, 2, 3)
    machine.run(cells[1], 0, correct=20)
    view = StatusReader(machine.store).read()
    lock.release()
    assert [cell.state for cell in view.cells] == ["done", "running", "waiting"]
    assert [cell.records for cell in view.cells] == [4, 1, 0]
    assert [cell.accuracy for cell in view.cells] == [75.0, 50.0, None]
    assert "1/3 cells, 5/12 records, running: 1 on left" in headline(view, None)
    shown = screen(view)
    assert "TENT [b]" in shown
    running = next(line for line in shown.splitlines() if line.startswith("running"))
    assert "1/4" in running
    assert "50.0" in running
    narrow = screen(view, width=80).splitlines()
    assert len(narrow) == len(shown.splitlines())
    assert max(map(len, narrow)) <= 80


def test_workers_are_shown_with_their_node_device_and_work(machine: Machine, cells: list[Cell]) -> None:
    rows = [
        {"node": f"10.0.0.{i}", "device": "gpu", "work": "vit-b W8A8 TENT [b]", "since": 1.0}
        for i in range(40)
    ]
    workers.write(machine.store.folder, rows)
    assert not StatusReader(machine.store).read().workers, "no run is writing"
    lock = Lock(machine.store.folder / "lock")
    workers.write(machine.store.folder, rows)
    view = StatusReader(machine.store).read()
    (machine.store.folder / workers.WORKERS).write_text('[{"node": 3}]')
    assert not StatusReader(machine.store).read().workers
    workers.write(machine.store.folder, [])
    lock.release()
    assert not (machine.store.folder / workers.WORKERS).exists()
    shown = screen(at(view, now=200.0)).splitlines()
    (line,) = [line for line in shown if line.startswith("10.0.0.3 ")]
    assert line.rstrip().split(maxsplit=4) == ["10.0.0.3", "gpu", "3", "min", "vit-b W8A8 TENT [b]"]
    assert "30 more workers" in "\n".join(shown)
    assert len(shown) <= 30


def test_what_an_earlier_run_left_is_waiting(machine: Machine, cells: list[Cell]) -> None:
    machine.run(cells[1], 0)
    assert StatusReader(machine.store).read().cells[1].state == "waiting", "nobody holds the folder"
    os.utime(machine.store.records_folder / f"{cells[1].key}.jsonl", (1000, 1000))
    lock = Lock(machine.store.folder / "lock")
    view = StatusReader(machine.store).read()
    lock.release()
    assert view.cells[1].state == "waiting", "this run has not come to it yet"
    assert "held by process" in headline(view, None)
    assert "no run is writing" in headline(StatusReader(machine.store).read(), None)


def test_the_time_left_is_work_over_pace(machine: Machine, cells: list[Cell]) -> None:
    machine.describe(cells[0])
    lock = Lock(machine.store.folder / "lock")
    watcher = StatusReader(machine.store)
    machine.store.append(cells[0].key, [result(cells[0], 0, seconds=2.0)])
    first = at(watcher.read(), now=1000.0)
    machine.store.append(cells[0].key, [result(cells[0], 1, seconds=2.0)])
    machine.store.append(cells[1].key, [result(cells[1], 0, seconds=6.0)])
    last = at(watcher.read(), now=1004.0)
    lock.release()
    # 8 s of work in 4 s. Left: 2 records at 2 s, 3 at 6 s, and 4 of a cell unlike any, at the mean of 4 s.
    assert seconds_left(first, last) == pytest.approx((2 * 2 + 3 * 6 + 4 * 4) / 2)
    assert "about 19 s left" in headline(last, 19.0)
    begun = at(last, begun=last.now - 5.0)
    assert seconds_left(begun, begun) == pytest.approx(38 / (10 / 5)), (
        "before anything has come: since its start"
    )
    assert seconds_left(first, at(last, holder="")) is None


def test_repeated_rounds_cost_nothing(machine: Machine, cells: list[Cell]) -> None:
    machine.store.append(
        cells[0].key, [result(cells[0], 0, seconds=2.0), result(cells[0], 2, seconds=2.0, repeats=1)]
    )
    assert StatusReader(machine.store).read().cells[0].seconds == 2.0


def test_failures_come_first_and_a_small_screen_is_enough(machine: Machine, cells: list[Cell]) -> None:
    machine.refuse(cells[2], "failed")
    machine.run(cells[0], 0, 1, 2, 3)
    view = StatusReader(machine.store).read()
    many = at(view, cells=[*view.cells, *[view.cells[1]] * 50])
    lines = screen(many, height=12).splitlines()
    assert len(lines) <= 12
    assert [line.split()[0] for line in lines[4:6]] == ["failed", "done"]
    assert "48 waiting" in lines[-1]
    assert "2/3 cells, 8/12 records, 1 failed" in headline(view, None)


def test_only_what_has_changed_is_read_again(
    machine: Machine, cells: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.run(cells[0], 0)
    machine.run(cells[1], 0)
    watcher, read, seen = StatusReader(machine.store), machine.store.read, []
    monkeypatch.setattr(machine.store, "read", lambda key: seen.append(key) or read(key))
    watcher.read()
    machine.store.append(cells[1].key, [result(cells[1], 1)])
    assert watcher.read().cells[1].records == 2
    assert seen == [cells[0].key, cells[1].key, cells[1].key]


def test_silence_is_told(machine: Machine, cells: list[Cell]) -> None:
    machine.run(cells[0], 0)
    lock = Lock(machine.store.folder / "lock")
    view = StatusReader(machine.store).read()
    lock.release()
    assert "no change for 17 min" in headline(at(view, now=view.now + 1000), 5.0)
    assert [spell(seconds) for seconds in (5, 200, 7200)] == ["5 s", "3 min", "2.0 h"]


@pytest.mark.parametrize("terminal", [True, False])
def test_it_follows_a_grid_to_its_end(terminal: bool, machine: Machine, cells: list[Cell]) -> None:
    lock = Lock(machine.store.folder / "lock")
    steps = iter(
        [
            lambda: machine.run(cells[0], 0, 1),
            lambda: machine.run(cells[0], 2, 3),
            lambda: [machine.refuse(cell, "unsupported") for cell in cells[1:]],
        ]
    )
    console = Console(file=io.StringIO(), width=120, height=30, force_terminal=terminal)
    watch(machine.store, console, sleep=lambda _: (next(steps)(), None)[1])
    lock.release()
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert "2/12 records" in said
    assert "3/3 cells, 12/12 records, 2 unsupported, complete" in said
    with pytest.raises(StopIteration):
        next(steps)


def test_ctrl_c_ends_it_quietly(tmp_path: Path, cells: list[Cell]) -> None:
    machine = Machine(tmp_path, cells, "left")

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    watch(ResultStore(tmp_path, machine.store.folder.name), Console(file=io.StringIO()), sleep=interrupt)


def test_looking_at_results_imports_neither_torch_nor_ray() -> None:
    code = (
        "import sys, tta_bench.storage.merge, tta_bench.scaffold, tta_bench.storage.watch\n"
        "heavy = {'torch', 'ray', 'timm'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert outcome.returncode == 0, outcome.stderr
