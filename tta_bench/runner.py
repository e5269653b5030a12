"""Tasks → records, in this process. `ray_runner` does the same over many; both call `execute`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tta_bench.api import Domain
from tta_bench.grid import Cell
from tta_bench.plan import Task
from tta_bench.store import Record

Chore = tuple[Cell, Domain]


class Sink(Protocol):
    """Where a runner delivers; only this writes results."""

    def prepared(self, done: int, total: int) -> None:
        """So many domains are ready."""

    def started(self, task: Task) -> None:
        """A task is about to run, for the first time or again."""

    def records(self, records: list[Record]) -> None:
        """Records of one cell."""


class Runner(Protocol):
    """Runs tasks to their end, in any order, and delivers every record once."""

    def run(self, tasks: Sequence[Task], chores: Sequence[Chore], sink: Sink) -> None:
        """Prepare the domains, then run the tasks."""


class LocalRunner:
    """One task after the other, in this process: for debugging, and for machines without Ray."""

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def run(self, tasks: Sequence[Task], chores: Sequence[Chore], sink: Sink) -> None:
        from tta_bench.execute import Executor

        executor = Executor(self.threads)
        for i, (cell, domain) in enumerate(chores, 1):
            executor.prepare(cell, domain)
            sink.prepared(i, len(chores))
        for task in tasks:
            sink.started(task)
            for records in executor.run(task.cells):
                sink.records(records)


def chores(cells: Sequence[Cell]) -> list[Chore]:
    """Every distinct set of images the cells will read."""
    found: dict[tuple[object, ...], Chore] = {}
    for cell in cells:
        for domain in cell.domains:
            found.setdefault((str(cell.data), cell.limit, domain), (cell, Domain(*domain)))
    return list(found.values())
