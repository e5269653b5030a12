"""What runs inside a Ray process: an executor, and an ear for the driver's wish to stop."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from tta_bench.api import Domain
from tta_bench.exchange import Delivery, Policy, Start
from tta_bench.grid import Cell
from tta_bench.plan import Task

LOOK_SECONDS = 1.0


class Switch:
    """A flag in the cluster's own key-value store: thrown by the driver, looked at once a second."""

    def __init__(self, job: str) -> None:
        self.key = f"tta-bench/stop/{job}"
        self.thrown, self.looked = False, 0.0

    def throw(self) -> None:
        """Ask all workers to stop."""
        from ray.experimental import internal_kv

        if not self.thrown:
            internal_kv._internal_kv_put(self.key, b"1")
        self.thrown = True

    def __call__(self) -> bool:
        """Whether the driver wants us to stop."""
        from ray.experimental import internal_kv

        now = time.monotonic()
        if not self.thrown and now - self.looked > LOOK_SECONDS:
            self.looked = now
            self.thrown = internal_kv._internal_kv_exists(self.key)
        return self.thrown


class Worker:
    """Lives in a Ray process; keeps models, calibrations and data warm between tasks."""

    def __init__(self, policy: Policy, switch: Switch) -> None:
        from tta_bench.execute import Executor

        self.executor, self.switch = Executor(policy), switch

    def ready(self) -> None:
        """Answer, which only a process that has started can."""

    def prepare(self, cell: Cell, domain: Domain) -> Iterator[str]:
        """Make one domain's images ready, or say why not."""
        try:
            self.executor.prepare(cell, domain)
        except Exception as error:  # the cells that need these images will tell in full
            yield str(error)

    def run(self, task: Task, starts: Sequence[Start]) -> Iterator[Delivery]:
        """Records and checkpoints of a task as they come."""
        yield from self.executor.run(task.cells, starts, self.switch)
