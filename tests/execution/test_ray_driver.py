"""The driver of a cluster whose nodes are lost, join or do not fit: on a fake Ray, without processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

import pytest

from tests.helpers.fake_ray import Clock, FakeRay, FakeWorker, finished
from tta_bench import config, grid
from tta_bench.errors import UserError
from tta_bench.execution.messages import Delivery, RunPolicy, Start, WorkerActivity
from tta_bench.execution.ray import connection, driver, nodes, worker_pool
from tta_bench.execution.ray.requirements import Requirements
from tta_bench.planning.tasks import Task, tasks

MINUTE = 60.0


class Notebook:
    """A recorder that only remembers; every cell starts at its beginning."""

    def __init__(self) -> None:
        self.missing: dict[str, int] = {}
        self.notes: list[str] = []
        self.failed: dict[str, str] = {}

    def prepared(self, done: int, total: int) -> None: ...

    def note(self, text: str) -> None:
        self.notes.append(text)

    def started(self, task: Task) -> list[Start]:
        self.missing |= {each.key: each.cell.records_expected for each in task.cells}
        return [Start()] * len(task.cells)

    def working(self, workers: list[WorkerActivity]) -> None: ...

    def delivered(self, delivery: Delivery) -> None:
        for record in delivery.records:
            if record["status"] == "ok":
                self.missing[delivery.key] -= 1
            else:
                self.failed[delivery.key] = record["reason"]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "monotonic", made)
    monkeypatch.setattr(time, "sleep", made.sleep)
    return made


@pytest.fixture
def run(write_yaml: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Notebook]:
    """Run a grid of so many seeds of one method with state on a fake cluster."""
    monkeypatch.setattr(driver, "requirements", lambda cells: Requirements({}, (), ()))

    def run(ray: FakeRay, cells: int = 6, stop: Callable[[], bool] = lambda: False) -> Notebook:
        file = write_yaml(methods=["tent"], quantizers=["fp32"], seeds=list(range(cells)))
        work = tasks(grid.expand(config.load(file)))
        monkeypatch.setattr(connection, "connected", ray.connected)
        notebook = Notebook()
        driver.RayRunner("auto", RunPolicy(), "fake:1").run(work, [], notebook, stop)  # type: ignore[arg-type]
        return notebook

    return run


def complete(notebook: Notebook, cells: int) -> None:
    assert not notebook.failed
    assert len(notebook.missing) == cells
    assert not any(notebook.missing.values())


def test_idle_workers_of_a_lost_node_get_no_job(clock: Clock, run: Callable[..., Notebook]) -> None:
    """Each of them would count as a death of the job that it gets."""
    ray = FakeRay(clock, a=4, b=1)

    def slow(task: Task) -> Iterator[Delivery]:
        while True:
            yield None  # type: ignore[misc]

    def happens() -> None:
        for worker in ray.workers:
            worker.delivers = slow if worker.node == "b" and "a" not in ray.dead else finished
        busy = [worker for worker in ray.workers if worker.node == "b" and worker.alive]
        if sum(worker.jobs for worker in ray.workers) == 5 and clock.now > 1060 and not ray.dead:
            ray.dead.add("a")  # where nobody works any more
            busy[0].alive = False  # its cell needs another worker

    ray.happens = happens
    found = run(ray, cells=5)
    complete(found, 5)
    assert "Node a is lost." in found.notes
    assert not [worker for worker in ray.workers if worker.node == "a" and worker.jobs > 2]


def test_a_node_whose_examining_worker_dies_is_examined_by_another(
    clock: Clock, run: Callable[..., Notebook]
) -> None:
    """The jobs are fewer than the workers, so that no new worker is started."""
    ray = FakeRay(clock, a=2)
    examined: list[FakeWorker] = []

    def examines(worker: FakeWorker) -> list[str]:
        examined.append(worker)
        if len(examined) == 1:
            worker.alive = False
            raise ray.exceptions.RayError("killed")
        return []

    ray.examines = examines
    complete(run(ray, cells=2), 2)
    assert len(examined) == 2


def test_a_cluster_without_room_waits_for_a_node(clock: Clock, run: Callable[..., Notebook]) -> None:
    """The head node has no cores; the first worker node joins after two minutes."""
    ray = FakeRay(clock, head=0)
    ray.happens = lambda: None

    def stop() -> bool:
        if clock.now > 1000 + 2 * MINUTE:
            ray.cpus["late"] = 2
        return False

    found = run(ray, stop=stop)
    complete(found, 6)
    waiting, joined = found.notes
    assert waiting.startswith("No node has room for a worker: no node has 1 CPUs.")
    assert "Waiting up to 10 minutes" in waiting
    assert joined == "Node late has joined."


def test_a_cluster_that_stays_without_room_ends_the_run(clock: Clock, run: Callable[..., Notebook]) -> None:
    with pytest.raises(UserError, match=r"in 10 minutes no node has joined .* add a node"):
        run(FakeRay(clock, head=0))
    assert clock.now < 1000 + nodes.JOIN_SECONDS + MINUTE


def test_a_run_that_loses_all_its_nodes_says_so_and_waits(clock: Clock, run: Callable[..., Notebook]) -> None:
    ray = FakeRay(clock, head=0, spot=1)

    def stop() -> bool:
        if sum(worker.jobs for worker in ray.workers) == 2 and not ray.dead:
            ray.dead.add("spot")
        if clock.now > 1000 + 5 * MINUTE:
            ray.cpus["next"] = 1
        return False

    found = run(ray, stop=stop)
    complete(found, 6)
    lost, waiting, joined = found.notes
    assert (lost, joined) == ("Node spot is lost.", "Node next has joined.")
    assert "Waiting up to 10 minutes" in waiting


def test_a_node_on_which_no_worker_starts_is_left_out(clock: Clock, run: Callable[..., Notebook]) -> None:
    ray = FakeRay(clock, good=1, full=2)
    ray.silent.add("full")

    def slow(task: Task) -> Iterator[Delivery]:
        yield from repeat(None, 300)  # type: ignore[arg-type]
        yield from finished(task)

    def happens() -> None:
        for worker in ray.workers:
            worker.delivers = slow

    ray.happens = happens
    found = run(ray, cells=12)
    complete(found, 12)
    (told,) = found.notes
    assert told.startswith("Node full is left out: no worker has started there in 10 minutes. `ray status`")


def test_a_node_that_starts_nothing_and_is_the_only_one_ends_the_run(
    clock: Clock, run: Callable[..., Notebook]
) -> None:
    ray = FakeRay(clock, only=2)
    ray.silent.add("only")
    with pytest.raises(UserError, match=r"(?s)no node fits this run.*no worker has started there in 10 min"):
        run(ray)
    assert clock.now < 1000 + worker_pool.START_SECONDS + MINUTE


def test_a_node_that_is_left_out_gives_its_jobs_back(clock: Clock, run: Callable[..., Notebook]) -> None:
    """Its second GPU, say, does not work, and the first worker has a job already."""
    ray = FakeRay(clock, a=1, b=1)
    ray.starts = lambda worker: ["the GPU is broken"] if worker.node == "b" and ray.cpus["b"] == 2 else []

    def slow(task: Task) -> Iterator[Delivery]:
        yield from repeat(None, 20)  # type: ignore[arg-type]
        yield from finished(task)

    def happens() -> None:
        if any(worker.jobs for worker in ray.workers if worker.node == "b"):
            ray.cpus["b"] = 2
        for worker in ray.workers:
            worker.delivers = slow

    ray.happens = happens
    found = run(ray)
    complete(found, 6)
    assert found.notes == ["Node b is left out: the GPU is broken."]


def test_all_answers_that_are_ready_are_taken_at_once(clock: Clock, run: Callable[..., Notebook]) -> None:
    ray = FakeRay(clock, a=30)
    complete(run(ray, cells=60), 60)
    assert ray.waits < 30, "and not one call for each of the 180 answers"
