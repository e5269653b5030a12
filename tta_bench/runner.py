"""Tasks → records, in this process. `ray_runner` does the same over many; both call `execute`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tta_bench import limits
from tta_bench.api import Domain
from tta_bench.exchange import Delivery, Policy, Start
from tta_bench.grid import Cell
from tta_bench.plan import Task

Chore = tuple[Cell, Domain]
Stop = Callable[[], bool]


class Sink(Protocol):
    """Where a runner delivers; only this writes results."""

    def prepared(self, done: int, total: int) -> None:
        """So many domains are ready."""

    def note(self, text: str) -> None:
        """Something worth knowing."""

    def started(self, task: Task) -> list[Start]:
        """A task is about to run, for the first time or again; where each of its cells goes on."""

    def delivered(self, delivery: Delivery) -> None:
        """Records of one cell, a checkpoint of it, or both."""


class Runner(Protocol):
    """Runs tasks to their end, in any order, and delivers every record once."""

    policy: Policy

    def run(self, tasks: Sequence[Task], chores: Sequence[Chore], sink: Sink, stop: Stop) -> None:
        """Prepare the domains, then run the tasks; come back early, but in order, once `stop` says so."""


class LocalRunner:
    """One task after the other, in this process: for debugging, and for machines without Ray."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def run(self, tasks: Sequence[Task], chores: Sequence[Chore], sink: Sink, stop: Stop) -> None:
        from tta_bench.execute import Executor

        limits.check(self.policy.cell_seconds)
        executor = Executor(self.policy)
        for i, (cell, domain) in enumerate(chores, 1):
            if stop():
                return
            try:
                executor.prepare(cell, domain)
            except Exception as error:  # the cells that need these images will tell in full
                sink.note(not_prepared(domain, error))
            sink.prepared(i, len(chores))
        for task in tasks:
            if stop():
                return
            for delivery in executor.run(task.cells, sink.started(task), stop):
                sink.delivered(delivery)


def not_prepared(domain: Domain, why: object) -> str:
    """What to say of a domain that could not be made ready."""
    return f"images of {domain}: cannot be made ready: {str(why).strip().splitlines()[-1]}"


def chores(cells: Sequence[Cell]) -> list[Chore]:
    """Every distinct set of images the cells will read."""
    found: dict[tuple[object, ...], Chore] = {}
    for cell in cells:
        for domain in cell.domains:
            found.setdefault((cell.data.digest, cell.limit, domain), (cell, Domain(*domain)))
    return list(found.values())
