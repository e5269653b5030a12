"""Ray's work in one process and in a chosen order: several workers, whose answers arrive as a seed says.

Each worker has an executor and random generators of its own, as a process would. Jobs, starts and records go
through the same job and recorder as in a real run. Workers and the driver can be lost at any answer.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tta_bench.execution.cell.cell_run import generators, restore_generators
from tta_bench.execution.executor import Executor
from tta_bench.execution.messages import Delivery, RunPolicy, Start
from tta_bench.execution.progress import RunProgress
from tta_bench.execution.ray.jobs import Job, TaskJob
from tta_bench.execution.recorder import ResultRecorder
from tta_bench.execution.run import pending
from tta_bench.grid import Cell, row_of
from tta_bench.planning.tasks import Task, split, tasks
from tta_bench.storage.store import ResultStore


class InProcessWorker:
    """Looks like a Ray actor to a job, and computes one answer whenever it is asked to."""

    def __init__(self, policy: RunPolicy) -> None:
        self.executor, self.random_state = Executor(policy), generators()
        self.answers: Iterator[Delivery] = iter(())
        self.run = self

    def options(self, **_: Any) -> InProcessWorker:
        return self

    def remote(self, task: Task, starts: Sequence[Start]) -> InProcessWorker:
        self.answers = self.executor.run(task.cells, starts)
        return self

    def answer(self) -> Delivery | None:
        """The next answer, computed with this worker's own random generators; None at the end."""
        restore_generators(self.random_state)
        found = next(self.answers, None)
        self.random_state = generators()
        return found


@dataclass
class Interleaved:
    """One run of cells over a results folder; `losses` is the share of answers after which a worker dies."""

    cells: Sequence[Cell]
    results: Path
    seed: int
    workers: int = 3
    losses: float = 0.0
    stop_after: int | None = None  # answers, after which the driver dies
    policy: RunPolicy = field(default_factory=lambda: RunPolicy(checkpoint_seconds=0))

    def run(self) -> ResultStore:
        """Run what is pending to its end, or until the driver dies."""
        store, progress = ResultStore(self.results, "interleaved"), RunProgress(quiet=True)
        lock = store.open([row_of(cell) for cell in self.cells])
        try:
            waiting = pending(store, self.cells, "missing").waiting
            with progress.running(waiting, 0):
                self._drive(waiting, ResultRecorder(store, progress, []))
        finally:
            lock.release()
        return store

    def _drive(self, waiting: Sequence[Cell], writer: ResultRecorder) -> None:
        draw = random.Random(self.seed)
        found = split(tasks(waiting, self.policy.share), self.workers)
        jobs: deque[Job] = deque(TaskJob(task, writer) for task in found)
        slots: list[tuple[InProcessWorker, Job | None]]
        slots = [(InProcessWorker(self.policy), None) for _ in range(self.workers)]
        answers = 0
        while jobs or any(job for _, job in slots):
            index = draw.choice([i for i, (_, job) in enumerate(slots) if job or jobs])
            worker, job = slots[index]
            if job is None:
                job = jobs.popleft()
                job.call(worker)
                slots[index] = (worker, job)
                continue
            answer = worker.answer()
            if answer is None:
                job.done()
                slots[index] = (worker, None)
                continue
            job.receive(answer)
            answers += 1
            if answers == self.stop_after:
                return
            if draw.random() < self.losses:
                jobs.extend(job.lost("lost on purpose", final=False))
                slots[index] = (InProcessWorker(self.policy), None)
