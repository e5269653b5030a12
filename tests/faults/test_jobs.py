"""What becomes of a job when its worker dies, without any workers: who is tried again, who has failed."""

from __future__ import annotations

from unittest.mock import MagicMock

from tests.faults.conftest import benchmark
from tta_bench import config, grid
from tta_bench.execution.messages import Delivery, Start
from tta_bench.execution.ray.jobs import MAX_DEATHS, JobQueue, TaskJob
from tta_bench.planning.sharing import resolve
from tta_bench.planning.tasks import Task
from tta_bench.storage.checkpoints import Checkpoint


class Sink:
    """Remembers what it is given; every cell starts where the test says."""

    def __init__(self) -> None:
        self.start, self.deliveries, self.missing = Start(), list[Delivery](), dict[str, int]()

    def prepared(self, done: int, total: int) -> None: ...

    def note(self, text: str) -> None: ...

    def started(self, task: Task) -> list[Start]:
        return [self.start] * len(task.cells)

    def working(self, workers: object) -> None: ...

    def delivered(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)

    def failed(self) -> dict[str, str]:
        return {d.key: r["reason"] for d in self.deliveries for r in d.records if r["status"] == "failed"}


def job(*methods: str) -> tuple[TaskJob, Sink, list[str]]:
    cells = grid.expand(config.parse(benchmark(methods)))
    sink = Sink()
    return TaskJob(Task(tuple(map(resolve, cells))), sink), sink, [cell.key for cell in cells]


def ok(key: str) -> Delivery:
    return Delivery(key, [{"key": key, "status": "ok"}])


def test_a_cell_that_kills_three_workers_has_failed() -> None:
    doomed, sink, (key,) = job("drift")
    for _ in range(MAX_DEATHS - 1):
        doomed.call(MagicMock())
        assert doomed.lost("boom", final=False) == [doomed]
    assert doomed.lost("boom", final=False) == []
    assert sink.failed() == {key: "boom\nThe worker died 3 times without getting further."}


def test_whoever_gets_further_may_go_on_for_ever() -> None:
    """A cluster that loses workers all the time still ends, as long as something is done in between."""
    slow, sink, (key,) = job("drift")
    for round in range(10):
        sink.start = Start(frozenset(range(round)))
        slow.call(MagicMock())
        slow.receive(ok(key))
        assert slow.lost("the node went away", final=False) == [slow]
    sink.start = Start(frozenset(range(10)))
    for batch in range(1, 10):
        slow.call(MagicMock())
        slow.receive(Delivery(key, [], Checkpoint(key, 10, batch, b"")))
        assert slow.lost("the node went away", final=False) == [slow]
    assert not sink.failed()


def test_to_start_over_and_die_at_the_same_place_is_no_progress() -> None:
    circling, sink, (key,) = job("unsaved")
    for _ in range(2 * MAX_DEATHS):
        circling.call(MagicMock())
        circling.receive(ok(key))
        if not circling.lost("boom", final=False):
            break
    assert key in sink.failed()


def test_of_cells_that_share_a_worker_only_the_one_at_fault_fails() -> None:
    shared, sink, keys = job("source", "t3a", "feature-drift")
    assert shared.lost("boom", final=False) == [shared], "perhaps it was somebody else's fault"
    alone = shared.lost("boom", final=False)
    assert [each.task.cells[0].key for each in alone] == keys
    assert alone[2].lost("boom", final=False) == [alone[2]]
    assert alone[2].lost("boom", final=False) == []
    assert list(sink.failed()) == [keys[2]]


def test_a_cell_that_has_ended_is_not_asked_again() -> None:
    shared, _, keys = job("source", "t3a")
    shared.call(MagicMock())
    shared.receive(Delivery(keys[0], [{"key": keys[0], "status": "failed", "reason": ""}]))
    assert shared.lost("boom", final=False) == [shared]
    assert [cell.key for cell in shared.task.cells] == keys[1:]


def test_whoever_had_all_its_time_is_not_given_more() -> None:
    hanging, sink, (key,) = job("drift")
    assert hanging.lost("silent", final=True) == []
    assert sink.failed() == {key: "silent"}
    shared, sink, _ = job("source", "t3a")
    assert len(shared.lost("silent", final=True)) == 2
    assert not sink.failed()


def test_a_worker_gets_the_first_job_whose_network_it_has() -> None:
    networks = ["fp32", {"use": "uniform", "bits": "W8A8"}]
    cells = grid.expand(config.parse(benchmark(["source"], quantizers=networks, seeds=[1, 2])))
    cells.sort(key=lambda cell: (cell.seed, cell.bits))
    jobs = [TaskJob(Task((resolve(cell),)), Sink()) for cell in cells]
    plain, quantised, later, last = jobs
    queue = JobQueue(jobs)
    assert queue.take(quantised.network) is quantised
    assert queue.take(quantised.network) is last
    assert queue.take(quantised.network) is plain, "no job needs that network: the first of all"
    queue.extend([plain])
    assert len(queue) == 2
    assert [queue.take(None), queue.take(None)] == [later, plain]
    assert not len(queue)
