"""What a worker can be asked to do, and what becomes of it when the worker dies."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from tta_bench.exchange import Delivery
from tta_bench.plan import Task, narrowed
from tta_bench.runner import Chore, Sink, not_prepared

MAX_DEATHS = 3  # without any progress in between


class Job(Protocol):
    """One call of a worker's generator."""

    can_stop: bool  # comes to an end by itself, with something to keep, when a stop is asked for

    @property
    def place(self) -> tuple[str, str] | None:
        """What a worker should have warm for it."""

    @property
    def size(self) -> int:
        """How many cells it is about."""

    def call(self, worker: Any) -> Any:
        """Ask the worker; return its stream of answers."""

    def receive(self, answer: Any) -> None:
        """Take one answer."""

    def done(self) -> None:
        """The stream has ended as it should."""

    def lost(self, why: str, final: bool) -> list[Job]:
        """The worker is gone: what to do instead; if it had all its time, not the same again."""


@dataclass
class Preparations:
    """How many of the domains are ready."""

    total: int
    done: int = 0


@dataclass
class ChoreJob:
    """Make one domain's images ready. If that fails, the cells that need them will say so."""

    chore: Chore
    count: Preparations
    sink: Sink
    deaths: int = 0
    can_stop = False
    place = None
    size = 1

    def call(self, worker: Any) -> Any:
        return worker.prepare.options(num_returns="streaming").remote(*self.chore)

    def receive(self, answer: str) -> None:
        self.sink.note(not_prepared(self.chore[1], answer))

    def done(self) -> None:
        self.count.done += 1
        self.sink.prepared(self.count.done, self.count.total)

    def lost(self, why: str, final: bool) -> list[Job]:
        self.deaths += 1
        if self.deaths < MAX_DEATHS and not final:
            return [self]
        self.receive(why)
        self.done()
        return []


@dataclass
class TaskJob:
    """Run a task, from where the sink says its cells are."""

    task: Task
    sink: Sink
    deaths: int = 0
    can_stop = True
    ended: set[str] = field(default_factory=set)  # cells that failed or cannot run
    furthest: dict[str, tuple[int, int]] = field(default_factory=dict)  # domains and batches, by cell
    reached: dict[str, int] = field(default_factory=dict)  # domains, by cell, in this attempt

    @property
    def place(self) -> tuple[str, str] | None:
        return self.task.place

    @property
    def size(self) -> int:
        return len(self.task.cells)

    def call(self, worker: Any) -> Any:
        starts = []
        for cell, start in zip(self.task.cells, self.sink.started(self.task), strict=True):
            starts.append(narrowed(start, cell, self.task.domains))
            self.reached[cell.key] = len(starts[-1].finished)
        return worker.run.options(num_returns="streaming").remote(self.task, starts)

    def receive(self, answer: Delivery) -> None:
        self.sink.delivered(answer)
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
        """The cells that are left: together once more, then each alone, so that only one can be at fault."""
        self.deaths += 1
        left = tuple(cell for cell in self.task.cells if cell.key not in self.ended)
        if len(left) > 1 and (final or self.deaths > 1):
            alone = [replace(self.task, cells=(cell,)) for cell in left]
            return [TaskJob(task, self.sink, 1, furthest=dict(self.furthest)) for task in alone]
        if left and self.deaths < MAX_DEATHS and not final:
            self.task = replace(self.task, cells=left)
            return [self]
        for cell in left:
            reason = why if final else f"{why}\nThe worker died {self.deaths} times without getting further."
            record = {"key": cell.key, "status": "failed", "code": cell.code, "reason": reason}
            self.sink.delivered(Delivery(cell.key, [record]))
        return []
