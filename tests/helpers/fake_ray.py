"""A cluster without processes: workers answer when asked, and the clock moves while nobody answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from tta_bench.execution.messages import Delivery, Start
from tta_bench.planning.tasks import Task


class FakeDeath(Exception):
    """What Ray raises in place of the answer of a dead worker."""


class Exceptions:
    """`ray.exceptions`."""

    RayError = FakeDeath


class Clock:
    """`time.monotonic` and `time.sleep`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class FakeRay:
    """The part of Ray that the driver uses. Tests change the nodes, and what workers answer."""

    exceptions = Exceptions

    def __init__(self, clock: Clock, **cpus: int) -> None:
        self.clock, self.cpus, self.workers = clock, cpus, list[FakeWorker]()
        self.dead: set[str] = set()  # nodes
        self.silent: set[str] = set()  # nodes on which no worker starts
        self.starts: Callable[[FakeWorker], list[str]] = lambda worker: []
        self.examines: Callable[[FakeWorker], list[str]] = lambda worker: []
        self.happens: Callable[[], None] = lambda: None  # at every wait
        self.waits = 0  # number of calls

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {
                "NodeID": name.encode().hex().ljust(56, "0"),  # a form that Ray accepts
                "NodeManagerAddress": name,
                "Alive": name not in self.dead,
                "Resources": {"CPU": cpus},
            }
            for name, cpus in self.cpus.items()
        ]

    def remote(self, **_: Any) -> Callable[[type], FakeMaker]:
        return lambda kind: FakeMaker(self)

    def wait(
        self, references: Sequence[Answer], *, num_returns: int = 1, timeout: float, fetch_local: bool
    ) -> tuple[list[Answer], list[Answer]]:
        self.waits += 1
        self.happens()
        ready = [each for each in references if each.ready][:num_returns]
        if not ready:
            self.clock.sleep(timeout)
        return ready, [each for each in references if each not in ready]

    def get(self, answer: Any) -> Any:
        return answer.value() if isinstance(answer, Answer) else answer

    def kill(self, worker: FakeWorker) -> None:
        worker.alive = False

    def get_runtime_context(self) -> FakeRay:
        return self

    def get_job_id(self) -> str:
        return "fake"

    @contextmanager
    def connected(self, *_: Any) -> Iterator[tuple[FakeRay, FakeRay]]:
        """In place of `connection.connected`: this object is its own watch of the head node."""
        yield self, self

    def check(self) -> None: ...

    def answers(self) -> bool:
        return True


class FakeMaker:
    """An actor class with its options."""

    def __init__(self, ray: FakeRay) -> None:
        self.ray = ray

    def options(self, scheduling_strategy: Any) -> FakeMaker:
        self.node = bytes.fromhex(scheduling_strategy.node_id).rstrip(b"\0").decode()
        return self

    def remote(self, *_: Any) -> FakeWorker:
        worker = FakeWorker(self.ray, self.node)
        self.ray.workers.append(worker)
        return worker


class FakeWorker:
    """A worker; its methods are called as `worker.run.remote(…)`, like an actor's."""

    def __init__(self, ray: FakeRay, node: str) -> None:
        self.ray, self.node, self.alive, self.jobs = ray, node, True, 0
        self.delivers: Callable[[Task], Iterator[Delivery]] = finished
        self.ready = Call(lambda *_: Answer(self, lambda: ray.starts(self)))
        self.examine = Call(lambda *_: Answer(self, lambda: ray.examines(self)))
        self.run = Call(self._run)

    @property
    def lost(self) -> bool:
        return not self.alive or self.node in self.ray.dead

    def _run(self, task: Task, starts: Sequence[Start]) -> Answer:
        self.jobs += 1
        return Answer(self, stream=self.delivers(task))


class Call:
    """A method of an actor."""

    def __init__(self, call: Callable[..., Answer]) -> None:
        self.remote = call

    def options(self, **_: Any) -> Call:
        return self


class Answer:
    """A reference to one answer, or to a stream of answers; None in a stream: the next one is not ready."""

    def __init__(
        self,
        worker: FakeWorker,
        value: Callable[[], Any] | None = None,
        stream: Iterator[Delivery | None] | None = None,
    ) -> None:
        self.worker, self.one, self.stream = worker, value, stream
        self.front: list[Any] = []

    @property
    def ready(self) -> bool:
        if self.worker.lost:
            return True
        if self.stream is None:
            return self.worker.node not in self.worker.ray.silent
        if not self.front:
            self.front = [next(self.stream, StopIteration)]
            if self.front == [None]:
                self.front.clear()
        return bool(self.front)

    def value(self) -> Any:
        if self.worker.lost:
            self._die()
        assert self.one is not None
        return self.one()

    def __next__(self) -> Any:
        if self.worker.lost:
            self._die()
        found = self.front.pop()
        if found is StopIteration:
            raise StopIteration
        return found

    def _die(self) -> NoReturn:
        raise FakeDeath("the worker has died")


def finished(task: Task) -> Iterator[Delivery]:
    """What a worker delivers that has no problem: all records of a cell at once."""
    for each in task.cells:
        where = [{"key": each.key, "status": "ok"}] * each.cell.records_expected
        yield Delivery(each.key, where)
