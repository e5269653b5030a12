"""Tasks over Ray: worker processes get and return plain data, and only the driver writes results."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tta_bench.errors import UserError
from tta_bench.execution.messages import Preparation, Recorder, RunPolicy, StopRequested, WorkerActivity
from tta_bench.execution.ray import connection
from tta_bench.execution.ray.deaths import in_short
from tta_bench.execution.ray.jobs import Job, PreparationJob, TaskJob
from tta_bench.execution.ray.metrics import MeteredRecorder
from tta_bench.execution.ray.nodes import MAX_FAILED_STARTS, ClusterNode, Nodes
from tta_bench.execution.ray.requirements import Requirements, requirements
from tta_bench.execution.ray.stop_flag import StopFlag
from tta_bench.execution.ray.worker import Worker
from tta_bench.planning.tasks import Task, split
from tta_bench.plugins.identity import PluginIdentity

WAIT_SECONDS = 1.0
CAPACITY_SECONDS = 5.0  # between two checks of how many workers fit on the cluster
GRACE_SECONDS = 30.0  # for a worker whose own time limit did not work, before it is killed


@dataclass(eq=False)
class WorkerState:
    """A worker, the network it has in memory, and its job; without a job, it is idle or starting."""

    worker: Any
    node: ClusterNode
    device: str = "cpu"
    network: tuple[str, str] | None = None
    job: Job | None = None
    examines: bool = False  # its start is also the examination of its node
    began: float = 0.0  # time of day at which its job began
    answered: float = 0.0  # when it last answered
    killed_because: str = ""


@dataclass
class RayRunner:
    """Runs tasks on as many workers as there are cores, or as were requested."""

    workers: int | str
    policy: RunPolicy
    address: str | None = None
    states: list[WorkerState] = field(default_factory=list)
    pending: dict[Any, WorkerState] = field(default_factory=dict)  # by pending Ray reference
    checked: float = 0.0  # when the capacity of the cluster was last checked
    told: float = 0.0  # when the recorder was last given the work of every worker
    started: bool = False  # whether any worker was ever started
    required: Requirements | None = None  # of the nodes of a cluster at an address

    def run(
        self, tasks: Sequence[Task], images: Sequence[Preparation], recorder: Recorder, stop: StopRequested
    ) -> None:
        cells = [each.cell for task in tasks for each in task.cells]
        plugins = [plugin for cell in cells for plugin in cell.plugins]
        if self.address is not None:
            self.required = requirements(cells)
            recorder = MeteredRecorder(recorder)
        self.recorder = recorder
        try:
            with self.connected(plugins) as ray:
                self.stop_flag = StopFlag(ray.get_runtime_context().get_job_id())
                self.nodes = Nodes(self.policy, self.workers, recorder.note)
                done = itertools.count(1)
                self._drive([PreparationJob(each, done, len(images), recorder) for each in images], stop)
                if not stop():
                    self._update_nodes()
                    self._drive([TaskJob(task, recorder) for task in split(tasks, self.nodes.total())], stop)
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
        jobs = deque(wanted)
        while jobs or any(state.job for state in self.states):
            if stop():
                jobs.clear()
                self.stop_flag.set()
                if not any(state.job and state.job.can_stop for state in self.states):
                    return
            self.head.check()
            self._add_workers(len(jobs))
            busy = set(map(id, self.pending.values()))
            for state in self.states:
                if jobs and id(state) not in busy and state.node.examined:
                    self._assign(state, jobs)
            self._tell_workers()
            if self.pending:
                ready, _ = self.ray.wait(list(self.pending), timeout=WAIT_SECONDS, fetch_local=False)
                for reference in ready:
                    jobs.extend(self._receive(reference))
            else:
                time.sleep(WAIT_SECONDS)
            self._kill_unresponsive()

    # Workers -----------------------------------------------------------------------------------

    def _add_workers(self, waiting: int) -> None:
        """Start workers while there are jobs and room for them: nodes may have left, or joined."""
        now = time.monotonic()
        if now - self.checked < CAPACITY_SECONDS or not self.head.answers():
            return
        self.checked = now
        self._update_nodes()
        wanted = sum(state.job is not None for state in self.states) + waiting
        for node, device, room in self.nodes.rooms():
            running = sum(state.node is node and state.device == device for state in self.states)
            for _ in range(min(room - running, wanted - len(self.states))):
                self._start_worker(node, device)

    def _update_nodes(self) -> None:
        """Ask Ray for the nodes. A cluster at an address may get new ones; our own will not."""
        self.nodes.update(self.ray.nodes())
        if self.required is None:
            self.nodes.all_examined()
        if not self.nodes.total():
            if not self.started:
                raise UserError(f"Ray: {self.nodes.nowhere()}")
            if self.address is None:
                raise UserError("Ray has died. All records are kept; run the same command again to continue.")

    def _start_worker(self, node: ClusterNode, device: str) -> None:
        """Start a worker on a node; Ray lets it see only the GPU that it may use."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        policy = self.policy if device == "gpu" else replace(self.policy, device="cpu", gpus=0)
        make = self.ray.remote(num_cpus=policy.threads, num_gpus=policy.gpus)(Worker)
        here = NodeAffinitySchedulingStrategy(node.id, soft=False)
        worker = make.options(scheduling_strategy=here).remote(policy, self.stop_flag)
        first = not any(state.node is node and state.examines for state in self.states)
        state = WorkerState(worker, node, device, examines=first and not node.examined)
        self.states.append(state)
        self.started = True
        wanted = self.required if state.examines else None
        self.pending[worker.ready.remote(wanted, device)] = state

    def _assign(self, state: WorkerState, jobs: deque[Job]) -> None:
        """Give a worker the next job, preferably one whose network it has in memory."""
        job = next((job for job in jobs if job.network == state.network), jobs[0])
        jobs.remove(job)
        state.job, state.network, state.answered = job, job.network, time.monotonic()
        state.began = time.time()
        self.pending[job.call(state.worker)] = state

    def _receive(self, reference: Any) -> list[Job]:
        """Take the next answer of a worker; if the worker has died, return the jobs to run instead."""
        state = self.pending.get(reference)
        if state is None:  # it was on a node that has just been left out
            return []
        state.answered = time.monotonic()
        try:
            if state.job is not None:
                state.job.receive(self.ray.get(next(reference)))
                return []
            problems = self.ray.get(reference)
            del self.pending[reference]
            self._started(state, problems)
        except StopIteration:
            del self.pending[reference]
            assert state.job is not None
            state.job.done()
            state.job = None
        except self.ray.exceptions.RayError as death:
            del self.pending[reference]
            return self._remove(state, state.killed_because or in_short(death))
        return []

    def _started(self, state: WorkerState, problems: Sequence[str]) -> None:
        """A worker has started: its node is fit for the run, or is left out."""
        state.node.failed_starts = 0
        if problems:
            self._leave_out(state.node, ". ".join(problems))
        elif state.examines:
            state.node.examined = True

    def _leave_out(self, node: ClusterNode, why: str) -> None:
        """Stop the workers of a node, none of which has a job yet, and use it no longer."""
        for state in [state for state in self.states if state.node is node]:
            self.states.remove(state)
            self.ray.kill(state.worker)
        self.pending = {key: state for key, state in self.pending.items() if state.node is not node}
        self.nodes.leave_out(node, why)

    def _remove(self, state: WorkerState, why: str) -> list[Job]:
        """Forget a dead worker; return the jobs to run instead of its own."""
        self.states.remove(state)
        self.ray.kill(state.worker)
        self.checked = 0.0  # so that another worker can start at once
        if state.job is not None:
            return state.job.lost(why, final=bool(state.killed_because))
        state.node.failed_starts += 1
        if state.node.failed_starts == MAX_FAILED_STARTS:
            if any(other.job for other in self.states if other.node is state.node):
                state.node.failed_starts = 0  # others of this node work
            else:
                self._leave_out(state.node, f"workers die as they start: {why.rstrip('.')}")
        return []

    def _tell_workers(self) -> None:
        """Give the recorder the present work of every worker, for metrics and `status --watch`."""
        if time.monotonic() - self.told < WAIT_SECONDS:
            return
        self.told = time.monotonic()
        self.recorder.working(
            [
                WorkerActivity(state.node.name, state.device, state.job.what, state.began)
                for state in self.states
                if state.job is not None
            ]
        )

    def _kill_unresponsive(self) -> None:
        """Kill workers that hang where their own time limit cannot interrupt them."""
        if self.policy.cell_seconds is None:
            return
        for state in self.states:
            limit = self.policy.cell_seconds * (state.job.size if state.job else 1) + GRACE_SECONDS
            late = time.monotonic() - state.answered > limit
            if state.job is not None and not state.killed_because and late:
                state.killed_because = (
                    f"It had not answered for {limit:.0f} s (run.cell_minutes), and was killed."
                )
                self.ray.kill(state.worker)
