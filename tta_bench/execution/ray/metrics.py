"""Metrics of a run for Ray's dashboard and Prometheus; without an agent on the node they go nowhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tta_bench.execution.messages import Delivery, Recorder, Start, WorkerActivity
from tta_bench.planning.tasks import Task

PASS_SECONDS = [1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0]  # upper limits of the histogram's first buckets


class MeteredRecorder:
    """Counts what it passes on to the recorder of a run."""

    def __init__(self, recorder: Recorder) -> None:
        from ray.util import metrics

        self.recorder = recorder
        self.prepared, self.note, self.missing = recorder.prepared, recorder.note, recorder.missing
        self.states: dict[str, str] = {}  # by cell
        self.counts: Counter[str] = Counter()  # of cells, by state
        self.records = metrics.Counter("tta_bench_records", "records from workers", ("status",))
        self.cells = metrics.Gauge("tta_bench_cells", "cells of this run that were started", ("state",))
        self.seconds = metrics.Histogram(
            "tta_bench_seconds_per_pass", "seconds of one image's forward or backward pass", PASS_SECONDS
        )
        self.restarts = metrics.Counter("tta_bench_restarts", "workers that have died")
        self.workers = metrics.Gauge("tta_bench_busy_workers", "workers that compute", ("node",))
        self.nodes: set[str] = set()

    def started(self, task: Task) -> list[Start]:
        starts = self.recorder.started(task)
        for each in task.cells:
            self._update(each.key)
        return starts

    def working(self, workers: Sequence[WorkerActivity]) -> None:
        """Called once a second. Ray forgets a gauge that is not set again between two collections."""
        for state, count in self.counts.items():
            self.cells.set(count, {"state": state})
        busy = Counter(worker.node for worker in workers)
        self.nodes |= busy.keys()
        for node in self.nodes:
            self.workers.set(busy[node], {"node": node})
        self.recorder.working(workers)

    def delivered(self, delivery: Delivery) -> None:
        self.recorder.delivered(delivery)
        for record in delivery.records:
            status = record["status"]
            self.records.inc(1, {"status": status})
            self._update(delivery.key, status)
            passes = record.get("forward_images", 0) + record.get("backward_images", 0)
            if passes and "repeats" not in record:
                self.seconds.observe(record["seconds"] / passes)

    def _update(self, key: str, status: str = "ok") -> None:
        """A cell has started, or has got a record; several tasks may each have a part of it."""
        before = self.states.get(key)
        state = status if status != "ok" else "running" if self.missing[key] else "done"
        if before not in ("failed", "unsupported"):
            self.states[key] = state
            self.counts.update([state])
            self.counts.subtract([before] if before else [])
