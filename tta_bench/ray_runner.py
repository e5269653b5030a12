"""Tasks over Ray: one warm worker process a slot, plain data both ways, the driver alone writes."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tta_bench.api import Domain
from tta_bench.errors import UserError
from tta_bench.grid import Cell
from tta_bench.plan import Task
from tta_bench.runner import Chore, Sink
from tta_bench.store import Record

MAX_ATTEMPTS = 3
# Ray reads these when it is imported; they quieten notices a user of this tool cannot act on.
QUIET = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}


class Worker:
    """Lives in a Ray process; keeps models, calibrations and data warm between tasks."""

    def __init__(self, threads: int) -> None:
        from tta_bench.execute import Executor

        self.executor = Executor(threads)

    def prepare(self, cell: Cell, domain: Domain) -> None:
        """Make one domain's images ready."""
        self.executor.prepare(cell, domain)

    def run(self, task: Task) -> Iterator[list[Record]]:
        """Records of a task as they come."""
        yield from self.executor.run(task.cells)


@dataclass
class Slot:
    """A worker and what it has warm."""

    worker: Any
    place: tuple[str, str] | None = None
    task: Task | None = None


@dataclass
class RayRunner:
    """Runs tasks on as many workers as there are cores, or as were asked for."""

    workers: int | str
    threads: int
    address: str | None = None
    attempts: dict[Task, int] = field(default_factory=dict)

    def run(self, tasks: Sequence[Task], chores: Sequence[Chore], sink: Sink) -> None:
        os.environ.update({k: v for k, v in QUIET.items() if k not in os.environ})
        import ray

        self._connect(ray)
        try:
            make = ray.remote(num_cpus=self.threads)(Worker)
            wanted = min(self._slots(ray), max(len(tasks), len(chores), 1))
            slots = [Slot(make.remote(self.threads)) for _ in range(wanted)]
            self._prepare(ray, slots, chores, sink)
            self._work(ray, slots, deque(tasks), sink, lambda: make.remote(self.threads))
        finally:
            ray.shutdown()

    def _connect(self, ray: Any) -> None:
        options: dict[str, Any] = dict(log_to_driver=False, logging_level="ERROR")
        if self.address is None:
            cpus = None if self.workers == "auto" else int(self.workers) * self.threads
            options |= dict(num_cpus=cpus, include_dashboard=False)
        try:
            ray.init(address=self.address, **options)
        except Exception as error:  # Ray raises its own, ConnectionError, RuntimeError, …
            raise UserError(
                f"Ray does not start: {error}. Try --engine local, or check --ray-address."
            ) from error

    def _slots(self, ray: Any) -> int:
        if self.workers != "auto":
            return int(self.workers)
        return max(1, int(ray.cluster_resources().get("CPU", 1)) // self.threads)

    def _prepare(self, ray: Any, slots: list[Slot], chores: Sequence[Chore], sink: Sink) -> None:
        waiting = deque(chores)
        busy: dict[Any, Slot] = {}
        idle, done = list(slots), 0
        while waiting or busy:
            while waiting and idle:
                slot = idle.pop()
                busy[slot.worker.prepare.remote(*waiting.popleft())] = slot
            (ready, *_), _ = ray.wait(list(busy), num_returns=1)
            ray.get(ready)
            idle.append(busy.pop(ready))
            done += 1
            sink.prepared(done, len(chores))

    def _work(self, ray: Any, slots: list[Slot], waiting: deque[Task], sink: Sink, renew: Any) -> None:
        busy: dict[Any, Slot] = {}
        idle = list(slots)
        while waiting or busy:
            while waiting and idle:
                self._start(idle.pop(0), waiting, busy, sink)
            (stream, *_), _ = ray.wait(list(busy), num_returns=1, fetch_local=False)
            slot = busy[stream]
            try:
                sink.records(ray.get(next(stream)))
            except StopIteration:
                idle.append(busy.pop(stream))
            except (ray.exceptions.RayActorError, ray.exceptions.RaySystemError) as death:
                idle.append(busy.pop(stream))
                slot.worker, slot.place = renew(), None
                self._retry(slot, waiting, sink, str(death))

    def _start(self, slot: Slot, waiting: deque[Task], busy: dict[Any, Slot], sink: Sink) -> None:
        """Give a worker the next task, by preference one whose model it has warm."""
        task = next((t for t in waiting if t.place == slot.place), waiting[0])
        waiting.remove(task)
        slot.task, slot.place = task, task.place
        sink.started(task)
        run = slot.worker.run.options(num_returns="streaming")
        busy[run.remote(task)] = slot

    def _retry(self, slot: Slot, waiting: deque[Task], sink: Sink, why: str) -> None:
        """A dead worker's task starts again elsewhere; one that kills three workers has failed."""
        task = slot.task
        assert task is not None
        self.attempts[task] = self.attempts.get(task, 0) + 1
        if self.attempts[task] < MAX_ATTEMPTS:
            waiting.append(task)
            return
        reason = f"the worker died {MAX_ATTEMPTS} times: {why}"
        for cell in task.cells:
            sink.records([{"kind": "domain", "key": cell.key, "status": "failed", "reason": reason}])
