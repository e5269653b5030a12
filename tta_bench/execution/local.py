"""Tasks → records in this process; `ray.driver` does the same with many processes. Both use `Executor`."""

from __future__ import annotations

from collections.abc import Sequence

from tta_bench.execution import time_limit
from tta_bench.execution.messages import Preparation, Recorder, RunPolicy, StopRequested
from tta_bench.planning.tasks import Task


class LocalRunner:
    """One task after the other, in this process: for debugging, and for machines without Ray."""

    def __init__(self, policy: RunPolicy) -> None:
        self.policy = policy

    def run(
        self, tasks: Sequence[Task], images: Sequence[Preparation], recorder: Recorder, stop: StopRequested
    ) -> None:
        from tta_bench.execution.executor import Executor

        time_limit.check(self.policy.cell_seconds)
        executor = Executor(self.policy)
        for i, wanted in enumerate(images, 1):
            if stop():
                return
            try:
                executor.prepare(*wanted)
            except Exception as error:  # the cells that need these images will fail with the full reason
                recorder.note(wanted.failure(error))
            recorder.prepared(i, len(images))
        for task in tasks:
            if stop():
                return
            for delivery in executor.run(task.cells, recorder.started(task), stop):
                recorder.delivered(delivery)
