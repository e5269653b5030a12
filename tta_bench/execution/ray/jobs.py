"""What a worker can be asked to do, and what happens to it when the worker dies."""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from tta_bench.execution.messages import Delivery, Preparation, Recorder
from tta_bench.planning.tasks import Task

MAX_DEATHS = 3  # of workers, without any progress between them
SIZE = r"[\d.]+ ?[KMGT]?i?B"
USED = re.compile(rf"was ({SIZE})(?: used)? / ({SIZE})")  # Ray 2.60 writes `used`


@dataclass(eq=False)
class PreparationJob:
    """Prepare the images of one domain. If that fails, the cells that need them will fail, too."""

    wanted: Preparation
    count: Iterator[int]  # counts the prepared domains of all jobs
    total: int
    recorder: Recorder
    deaths: int = 0
    can_stop = False  # does not end early, with its state saved, when a stop is requested
    network = None  # the model and quantizer that a worker should already have in memory
    size = 1  # number of cells

    @property
    def what(self) -> str:
        """What a worker does with it, for the user."""
        return f"images of {self.wanted.domain}"

    def call(self, worker: Any) -> Any:
        """Ask the worker; return its stream of answers."""
        return worker.prepare.options(num_returns="streaming").remote(*self.wanted)

    def receive(self, answer: str) -> None:
        self.recorder.note(self.wanted.failure(answer))

    def done(self) -> None:
        """The stream of answers has ended normally."""
        self.recorder.prepared(next(self.count), self.total)

    def lost(self, why: str, final: bool) -> list[Job]:
        """The worker has died: the jobs to run instead. `final`: its time is over, so it gets no retry."""
        self.deaths += 1
        if self.deaths < MAX_DEATHS and not final:
            return [self]
        self.receive(why)
        self.done()
        return []


@dataclass(eq=False)
class TaskJob:
    """Run a task, from where the recorder says that its cells start."""

    task: Task
    recorder: Recorder
    deaths: int = 0
    can_stop = True
    ended: set[str] = field(default_factory=set)  # cells that failed or cannot run
    furthest: dict[str, tuple[int, int]] = field(default_factory=dict)  # domains and batches, by cell
    reached: dict[str, int] = field(default_factory=dict)  # domains, by cell, in this attempt

    @property
    def network(self) -> tuple[str, str]:
        return self.task.network

    @property
    def size(self) -> int:
        return len(self.task.cells)

    @property
    def what(self) -> str:
        cell, methods = self.task.cells[0].cell, [each.cell.labels.method for each in self.task.cells]
        return f"{cell.labels.model} {cell.bits} {', '.join(methods)}, seed {cell.seed}"

    def call(self, worker: Any) -> Any:
        starts = self.recorder.started(self.task)
        for cell, start in zip(self.task.cells, starts, strict=True):
            self.reached[cell.key] = len(start.finished)
        return worker.run.options(num_returns="streaming").remote(self.task, starts)

    def receive(self, answer: Delivery) -> None:
        self.recorder.delivered(answer)
        states = {record["status"] for record in answer.records}
        if states & {"failed", "unsupported"}:
            self.ended.add(answer.key)
        self.reached[answer.key] += "ok" in states
        now = (self.reached[answer.key], answer.checkpoint.batch if answer.checkpoint else 0)
        # A method that cannot be saved starts over and gets as far again: that is no progress.
        if now > self.furthest.setdefault(answer.key, (0, 0)):
            self.furthest[answer.key] = now
            self.deaths = 0

    def done(self) -> None:
        pass

    def lost(self, why: str, final: bool) -> list[Job]:
        """The remaining cells: together once more, then each alone, so that only the one at fault fails."""
        self.deaths += 1
        left = tuple(cell for cell in self.task.cells if cell.key not in self.ended)
        if len(left) > 1 and (final or self.deaths > 1):
            alone = [replace(self.task, cells=(cell,)) for cell in left]
            return [TaskJob(task, self.recorder, 1, furthest=dict(self.furthest)) for task in alone]
        if left and self.deaths < MAX_DEATHS and not final:
            self.task = replace(self.task, cells=left)
            return [self]
        for cell in left:
            reason = why if final else f"{why}\nThe worker died {self.deaths} times without getting further."
            record = {"key": cell.key, "status": "failed", "code": cell.cell.code, "reason": reason}
            self.recorder.delivered(Delivery(cell.key, [record]))
        return []


Job: TypeAlias = PreparationJob | TaskJob  # one call of a worker's generator


class JobQueue:
    """Waiting jobs in their order; to take one costs the same however many there are."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._numbers = itertools.count()
        self._waiting: dict[tuple[str, str] | None, deque[tuple[int, Job]]] = {}  # by network
        self.extend(jobs)

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def extend(self, jobs: Iterable[Job]) -> None:
        """Add jobs at the end."""
        for job in jobs:
            self._waiting.setdefault(job.network, deque()).append((next(self._numbers), job))

    def clear(self) -> None:
        """Forget all jobs."""
        self._waiting.clear()

    def take(self, network: tuple[str, str] | None) -> Job:
        """The first job that needs this network, or the first of all if there is none."""
        if network not in self._waiting:
            network = min(self._waiting, key=lambda each: self._waiting[each][0][0])
        jobs = self._waiting[network]
        _, job = jobs.popleft()
        if not jobs:
            del self._waiting[network]
        return job


def in_short(death: Exception) -> str:
    """Ray's reason, without the processes of others that it lists when memory runs out."""
    text = str(death)
    if "low on memory" not in text:
        return text
    used = USED.search(text)
    amount = f" ({used[1]} / {used[2]} used)" if used else ""
    return (
        f"Ray has killed the worker because its machine was low on memory{amount}. Use fewer --workers, or "
        "end other programs. RAY_memory_usage_threshold (0.95) is the limit; RAY_memory_monitor_refresh_ms=0 "
        "leaves it to the system."
    )
