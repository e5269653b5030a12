"""Tasks over Ray: worker processes get and return plain data, and only the driver writes results."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tta_bench.execution.messages import Preparation, Recorder, RunPolicy, StopRequested, WorkerActivity
from tta_bench.execution.ray import connection
from tta_bench.execution.ray.jobs import Job, JobQueue, PreparationJob, TaskJob, in_short
from tta_bench.execution.ray.metrics import MeteredRecorder
from tta_bench.execution.ray.nodes import Nodes
from tta_bench.execution.ray.requirements import requirements
from tta_bench.execution.ray.stop_flag import StopFlag
from tta_bench.execution.ray.worker_pool import WorkerPool, WorkerState
from tta_bench.planning.tasks import Task, split
from tta_bench.plugins.identity import PluginIdentity

WAIT_SECONDS = 1.0
CAPACITY_SECONDS = 5.0  # between two checks of how many workers fit on the cluster
GRACE_SECONDS = 30.0  # for a worker whose own time limit did not work, before it is killed


@dataclass
class RayRunner:
    """Runs tasks on as many workers as there are cores, or as were requested."""

    workers: int | str
    policy: RunPolicy
    address: str | None = None
    checked: float = 0.0  # when the capacity of the cluster was last checked
    told: float = 0.0  # when the recorder was last given the work of every worker
    metered: MeteredRecorder | None = None  # the recorder, if the run has metrics

    def run(
        self, tasks: Sequence[Task], images: Sequence[Preparation], recorder: Recorder, stop: StopRequested
    ) -> None:
        cells = [each.cell for task in tasks for each in task.cells]
        plugins = [plugin for cell in cells for plugin in cell.plugins]
        required = None
        if self.address is not None:
            required = requirements(cells)
            recorder = self.metered = MeteredRecorder(recorder)
        self.recorder = recorder
        try:
            with self.connected(plugins) as ray:
                nodes = Nodes(self.policy, self.workers, recorder.note, may_join=self.address is not None)
                flag = StopFlag(ray.get_runtime_context().get_job_id())
                self.pool = WorkerPool(ray, self.policy, nodes, flag, required)
                done = itertools.count(1)
                self._drive([PreparationJob(each, done, len(images), recorder) for each in images], stop)
                if not stop():
                    self._update_nodes()
                    self._drive([TaskJob(task, recorder) for task in split(tasks, nodes.total())], stop)
        finally:
            recorder.working([])

    @contextmanager
    def connected(self, plugins: Sequence[PluginIdentity] = ()) -> Iterator[Any]:
        """Ray, connected to the cluster at the address or to one started here, until the block ends."""
        cpus = None if self.workers == "auto" else int(self.workers) * self.policy.threads
        with connection.connected(self.address, cpus, plugins) as (self.ray, self.head):
            yield self.ray

    def _drive(self, wanted: Iterable[Job], stop: StopRequested) -> None:
        """Run jobs to their end, even if workers die; after a stop, only until their state is saved."""
        jobs, pool = JobQueue(wanted), self.pool
        while jobs or any(state.job for state in pool.states):
            if stop():
                jobs.clear()
                pool.stop_flag.set()
                if not any(state.job and state.job.can_stop for state in pool.states):
                    return
            self.head.check()
            jobs.extend(self._add_workers(len(jobs)))
            for state in pool.usable() if jobs else ():
                if jobs:
                    self._assign(state, jobs.take(state.network))
            self._tell_workers()
            for reference in self._answers():
                jobs.extend(self._receive(reference))
            self._kill_unresponsive()

    def _answers(self) -> Sequence[Any]:
        """All references that are ready; if none is, the first one, or none after a second."""
        references = list(self.pool.pending)
        if not references:
            time.sleep(WAIT_SECONDS)
            return []
        # A call costs time for each reference, so it must not fetch a single answer.
        ready, _ = self.ray.wait(references, num_returns=len(references), timeout=0, fetch_local=False)
        if not ready:
            ready, _ = self.ray.wait(references, timeout=WAIT_SECONDS, fetch_local=False)
        return list(ready)

    def _add_workers(self, waiting: int) -> list[Job]:
        """Start workers where there is room: nodes may have left, or joined. Returns jobs of bad nodes."""
        now = time.monotonic()
        if now - self.checked < CAPACITY_SECONDS or not self.head.answers():
            return []
        self.checked = now
        self._update_nodes()
        given_back = self.pool.leave_out_silent()
        self.pool.fill(waiting + len(given_back))
        return given_back

    def _update_nodes(self) -> None:
        """Ask Ray for the nodes, and forget idle workers of those that are lost."""
        self.pool.nodes.update(self.ray.nodes())
        self.pool.drop_lost()

    def _assign(self, state: WorkerState, job: Job) -> None:
        """Give a worker a job."""
        state.job, state.network, state.answered = job, job.network, time.monotonic()
        state.began = time.time()
        self.pool.pending[job.call(state.worker)] = state

    def _receive(self, reference: Any) -> list[Job]:
        """Take the next answer of a worker; returns the jobs to run again, or instead of its own."""
        state = self.pool.pending.get(reference)
        if state is None:  # it was on a node that has just been left out
            return []
        state.answered = time.monotonic()
        try:
            if state.job is not None:
                state.job.receive(self.ray.get(next(reference)))
                return []
            problems = self.ray.get(reference)
            del self.pool.pending[reference]
            return self.pool.answered(state, problems)
        except StopIteration:
            del self.pool.pending[reference]
            assert state.job is not None
            state.job.done()
            state.job = None
        except self.ray.exceptions.RayError as death:
            return self._died(state, state.killed_because or in_short(death))
        return []

    def _died(self, state: WorkerState, why: str) -> list[Job]:
        """Forget a dead worker; return the jobs to run instead of its own."""
        self.pool.forget(state)
        self.checked = 0.0  # so that another worker can start at once
        if self.metered is not None:
            self.metered.restarts.inc()
        if state.job is not None:
            return state.job.lost(why, final=bool(state.killed_because))
        return self.pool.failed(state, why)

    def _tell_workers(self) -> None:
        """Give the recorder the present work of every worker, for metrics and `status --watch`."""
        if time.monotonic() - self.told < WAIT_SECONDS:
            return
        self.told = time.monotonic()
        self.recorder.working(
            [
                WorkerActivity(state.node.name, state.device, state.job.what, state.began)
                for state in self.pool.states
                if state.job is not None
            ]
        )

    def _kill_unresponsive(self) -> None:
        """Kill workers that hang where their own time limit cannot interrupt them."""
        if self.policy.cell_seconds is None:
            return
        for state in self.pool.states:
            limit = self.policy.cell_seconds * (state.job.size if state.job else 1) + GRACE_SECONDS
            late = time.monotonic() - state.answered > limit
            if state.job is not None and not state.killed_because and late:
                state.killed_because = (
                    f"It had not answered for {limit:.0f} s (run.cell_minutes), and was killed."
                )
                self.ray.kill(state.worker)
