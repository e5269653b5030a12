"""Tasks over Ray: worker processes get and return plain data, and only the driver writes results."""

from __future__ import annotations

import itertools
import socket
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tta_bench.errors import UserError
from tta_bench.execution.interrupt import handlers_kept
from tta_bench.execution.messages import Preparation, Recorder, RunPolicy, StopRequested
from tta_bench.execution.ray.capacity import capacity, no_capacity
from tta_bench.execution.ray.environment import temporary_environment
from tta_bench.execution.ray.head import HeadWatch
from tta_bench.execution.ray.jobs import Job, PreparationJob, TaskJob
from tta_bench.execution.ray.stop_flag import StopFlag
from tta_bench.execution.ray.worker import Worker
from tta_bench.planning.tasks import Task, split

WAIT_SECONDS = 1.0
CAPACITY_SECONDS = 5.0  # between two checks of how many workers fit on the cluster
GRACE_SECONDS = 30.0  # for a worker whose own time limit did not work, before it is killed
MAX_FAILED_STARTS = 5
# Ray reads these when it is imported; they silence messages that a user of this tool cannot act on.
QUIET = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
}
# Ray's own default is 15, at which workers wait for every other process of the machine.
SAME_PRIORITY = {"RAY_worker_niceness": "0"}  # added to the niceness of the driver
# With this setting, which is named after systems where it is the default, Ray listens on loopback only.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


@dataclass(eq=False)
class WorkerState:
    """A worker, the network it has in memory, and its job; without a job, it is idle or starting."""

    worker: Any
    device: str = "cpu"
    network: tuple[str, str] | None = None
    job: Job | None = None
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
    started: bool = False  # whether any worker was ever started
    failed_starts: int = 0

    def run(
        self, tasks: Sequence[Task], images: Sequence[Preparation], recorder: Recorder, stop: StopRequested
    ) -> None:
        with self.connected() as ray:
            self.stop_flag = StopFlag(ray.get_runtime_context().get_job_id())
            done = itertools.count(1)
            self._drive([PreparationJob(each, done, len(images), recorder) for each in images], stop)
            if not stop():
                workers = sum(self._capacity().values())
                self._drive([TaskJob(task, recorder) for task in split(tasks, workers)], stop)

    @contextmanager
    def connected(self) -> Iterator[Any]:
        """Ray, connected to the cluster at the address or to one started here, until the block ends."""
        with temporary_environment(QUIET | SAME_PRIORITY | (LOOPBACK if self.address is None else {})):
            import ray

            self.ray = ray
            with handlers_kept():
                self._connect()
            self.head = HeadWatch(ray.get_runtime_context().gcs_address)
            try:
                yield ray
            finally:
                self.head.close(ray.shutdown)

    def _connect(self) -> None:
        options: dict[str, Any] = dict(log_to_driver=False, logging_level="ERROR")
        if self.address is not None:
            _check_address(self.address)
        else:
            cpus = None if self.workers == "auto" else int(self.workers) * self.policy.threads
            options |= dict(num_cpus=cpus, include_dashboard=False)
        try:
            self.ray.init(address=self.address or "local", **options)
        except Exception as error:  # Ray raises its own errors, ConnectionError, RuntimeError, …
            raise UserError(
                f"Ray does not start: {error}. Try --engine local, or check --ray-address; a cluster that "
                "wants a token reads it from RAY_AUTH_MODE=token and RAY_AUTH_TOKEN."
            ) from error

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
                if jobs and id(state) not in busy:
                    self._assign(state, jobs)
            if self.pending:
                ready, _ = self.ray.wait(list(self.pending), timeout=WAIT_SECONDS, fetch_local=False)
                for reference in ready:
                    jobs.extend(self._receive(reference))
            else:
                time.sleep(WAIT_SECONDS)
            self._kill_unresponsive()

    def _add_workers(self, waiting: int) -> None:
        """Start workers while there are jobs and room for them: nodes may have left, or joined."""
        now = time.monotonic()
        if now - self.checked < CAPACITY_SECONDS:
            return
        self.checked = now
        wanted = sum(state.job is not None for state in self.states) + waiting
        for device, room in self._capacity().items():
            running = sum(state.device == device for state in self.states)
            for _ in range(min(room - running, wanted - len(self.states))):
                self._start_worker(device)

    def _start_worker(self, device: str) -> None:
        """Start a worker; Ray lets it see only the GPU that it may use."""
        policy = self.policy if device == "gpu" else replace(self.policy, device="cpu", gpus=0)
        make = self.ray.remote(num_cpus=policy.threads, num_gpus=policy.gpus)(Worker)
        state = WorkerState(make.remote(policy, self.stop_flag), device)
        self.started = True
        self.states.append(state)
        self.pending[state.worker.ready.remote()] = state

    def _capacity(self) -> dict[str, int]:
        """How many workers fit now. A cluster at an address may get new nodes; our own will not."""
        found = capacity([node["Resources"] for node in self.ray.nodes() if node["Alive"]], self.policy)
        if not any(found.values()):
            if not self.started:
                raise UserError(f"Ray: {no_capacity(self.policy)}")
            if self.address is None:
                raise UserError("Ray has died. All records are kept; run the same command again to continue.")
        if self.workers != "auto":
            found["gpu"] = min(found["gpu"], int(self.workers))
            found["cpu"] = min(found["cpu"], int(self.workers) - found["gpu"])
        return found

    def _assign(self, state: WorkerState, jobs: deque[Job]) -> None:
        """Give a worker the next job, preferably one whose network it has in memory."""
        job = next((job for job in jobs if job.network == state.network), jobs[0])
        jobs.remove(job)
        state.job, state.network, state.answered = job, job.network, time.monotonic()
        self.pending[job.call(state.worker)] = state

    def _receive(self, reference: Any) -> list[Job]:
        """Take the next answer of a worker; if the worker has died, return the jobs to run instead."""
        state = self.pending[reference]
        state.answered = time.monotonic()
        try:
            if state.job is not None:
                state.job.receive(self.ray.get(next(reference)))
                return []
            self.ray.get(reference)
            del self.pending[reference]
            self.failed_starts = 0
        except StopIteration:
            del self.pending[reference]
            assert state.job is not None
            state.job.done()
            state.job = None
        except self.ray.exceptions.RayError as death:
            del self.pending[reference]
            return self._remove(state, state.killed_because or str(death))
        return []

    def _remove(self, state: WorkerState, why: str) -> list[Job]:
        """Forget a dead worker; return the jobs to run instead of its own."""
        self.states.remove(state)
        self.ray.kill(state.worker)
        self.checked = 0.0  # so that another worker can start at once
        if state.job is not None:
            return state.job.lost(why, final=bool(state.killed_because))
        self.failed_starts += 1
        if self.failed_starts == MAX_FAILED_STARTS:
            raise UserError(f"Ray: workers die as they start: {why}")
        return []

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


def _check_address(address: str) -> None:
    """Raise if nothing listens at host:port; Ray itself would retry for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():  # "auto", or another form that Ray understands
        return
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"--ray-address {address}: nobody answers: {error}. Check it.") from None
