"""The code that runs in a Ray process: an executor that stops when the driver asks for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tta_bench.api import Domain
from tta_bench.execution.messages import Delivery, RunPolicy, Start
from tta_bench.execution.ray.requirements import Requirements, problems
from tta_bench.execution.ray.stop_flag import StopFlag
from tta_bench.grid import Cell
from tta_bench.planning.tasks import Task


class Worker:
    """A Ray actor; it keeps models, calibrations and data in memory between tasks."""

    def __init__(self, policy: RunPolicy, stop: StopFlag) -> None:
        from tta_bench.execution.executor import Executor

        self.executor, self.stop = Executor(policy), stop

    def ready(self, wanted: Requirements | None, device: str) -> list[str]:
        """Why this node cannot run the cells; returning shows that the process has started."""
        return [] if wanted is None else problems(wanted, device)

    def prepare(self, cell: Cell, domain: Domain) -> Iterator[str]:
        """Prepare the images of one domain; yields the reason if that fails."""
        try:
            self.executor.prepare(cell, domain)
        except Exception as error:  # the cells that need these images will fail with the full reason
            yield str(error)

    def run(self, task: Task, starts: Sequence[Start]) -> Iterator[Delivery]:
        """Records and checkpoints of a task as they are made."""
        yield from self.executor.run(task.cells, starts, self.stop)
