"""Tasks over Ray: one warm worker process a slot, plain data both ways, the driver alone writes."""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tta_bench.errors import UserError
from tta_bench.exchange import Policy
from tta_bench.plan import Task, spread
from tta_bench.ray_jobs import ChoreJob, Job, Preparations, TaskJob
from tta_bench.ray_places import nowhere, places
from tta_bench.ray_worker import Switch, Worker
from tta_bench.runner import Chore, Sink, Stop

WAIT_SECONDS = 1.0
LOOK_SECONDS = 5.0  # between two looks at how many workers the cluster has room for
GRACE_SECONDS = 30.0  # for a worker whose alarm did not go off, before it is killed
MAX_FAILED_STARTS = 5
# Ray reads these when it is imported; they quieten notices a user of this tool cannot act on.
QUIET = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
}
# Named for the systems where it is the default: Ray then listens on the loopback interface only.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


@dataclass(eq=False)
class Slot:
    """A worker, what it has warm and what it is doing; without a job, it is idle or starting."""

    worker: Any
    device: str = "cpu"
    place: tuple[str, str] | None = None
    job: Job | None = None
    heard: float = 0.0  # when it last gave a sign of life
    silent: str = ""  # why it was killed


@dataclass
class RayRunner:
    """Runs tasks on as many workers as there are cores, or as were asked for."""

    workers: int | str
    policy: Policy
    address: str | None = None
    slots: list[Slot] = field(default_factory=list)
    pending: dict[Any, Slot] = field(default_factory=dict)  # what a worker owes us → the worker
    looked: float = 0.0
    started: bool = False  # any worker, ever
    failed_starts: int = 0

    def run(self, tasks: Sequence[Task], chores: Sequence[Chore], sink: Sink, stop: Stop) -> None:
        self.connect()
        ray = self.ray
        try:
            self.switch = Switch(ray.get_runtime_context().get_job_id())
            count = Preparations(len(chores))
            self._drive([ChoreJob(chore, count, sink) for chore in chores], stop)
            if not stop():
                room = sum(self._room().values())
                self._drive([TaskJob(task, sink) for task in spread(tasks, room)], stop)
        finally:
            ray.shutdown()

    def connect(self) -> None:
        """Join the cluster at the address, or start one here; `ray.shutdown` ends either."""
        settings = QUIET | (LOOPBACK if self.address is None else {})
        os.environ.update({k: v for k, v in settings.items() if k not in os.environ})
        import ray

        self.ray = ray
        options: dict[str, Any] = dict(log_to_driver=False, logging_level="ERROR")
        if self.address is not None:
            _knock(self.address)
        else:
            cpus = None if self.workers == "auto" else int(self.workers) * self.policy.threads
            options |= dict(num_cpus=cpus, include_dashboard=False)
        try:
            self.ray.init(address=self.address or "local", **options)
        except Exception as error:  # Ray raises its own, ConnectionError, RuntimeError, …
            raise UserError(
                f"Ray does not start: {error}. Try --engine local, or check --ray-address; a cluster that "
                "wants a token reads it from RAY_AUTH_MODE=token and RAY_AUTH_TOKEN."
            ) from error

    def _drive(self, wanted: Iterable[Job], stop: Stop) -> None:
        """Run jobs to their end, whatever becomes of the workers; or let them come to a halt."""
        jobs = deque(wanted)
        while jobs or any(slot.job for slot in self.slots):
            if stop():
                jobs.clear()
                self.switch.throw()
                if not any(slot.job and slot.job.can_stop for slot in self.slots):
                    return
            self._grow(len(jobs))
            for slot in self._idle():
                if jobs:
                    self._give(slot, jobs)
            if self.pending:
                ready, _ = self.ray.wait(list(self.pending), timeout=WAIT_SECONDS, fetch_local=False)
                for debt in ready:
                    jobs.extend(self._advance(debt))
            else:
                time.sleep(WAIT_SECONDS)
            self._kill_silent()

    def _idle(self) -> list[Slot]:
        owing = set(map(id, self.pending.values()))
        return [slot for slot in self.slots if id(slot) not in owing]

    def _grow(self, waiting: int) -> None:
        """Start workers while there is work and room for them: nodes may have gone, or come."""
        now = time.monotonic()
        if now - self.looked < LOOK_SECONDS:
            return
        self.looked = now
        wanted = sum(slot.job is not None for slot in self.slots) + waiting
        for device, room in self._room().items():
            there = sum(slot.device == device for slot in self.slots)
            for _ in range(min(room - there, wanted - len(self.slots))):
                self._hire(device)

    def _hire(self, device: str) -> None:
        """Start a worker; Ray shows it no more of the GPUs than it is to use."""
        policy = self.policy if device == "gpu" else replace(self.policy, device="cpu", gpus=0)
        make = self.ray.remote(num_cpus=policy.threads, num_gpus=policy.gpus)(Worker)
        slot = Slot(make.remote(policy, self.switch), device)
        self.started = True
        self.slots.append(slot)
        self.pending[slot.worker.ready.remote()] = slot

    def _room(self) -> dict[str, int]:
        """Workers for which there is room now. A cluster of others may get new nodes; ours will not."""
        room = places([node["Resources"] for node in self.ray.nodes() if node["Alive"]], self.policy)
        if not any(room.values()):
            if not self.started:
                raise UserError(f"Ray: {nowhere(self.policy)}")
            if self.address is None:
                raise UserError(
                    "Ray has died. What is recorded is kept; the same command goes on from there."
                )
        if self.workers != "auto":
            room["gpu"] = min(room["gpu"], int(self.workers))
            room["cpu"] = min(room["cpu"], int(self.workers) - room["gpu"])
        return room

    def _give(self, slot: Slot, jobs: deque[Job]) -> None:
        """Give a worker the next job, by preference one whose model it has warm."""
        job = next((j for j in jobs if j.place == slot.place), jobs[0])
        jobs.remove(job)
        slot.job, slot.place, slot.heard = job, job.place, time.monotonic()
        self.pending[job.call(slot.worker)] = slot

    def _advance(self, debt: Any) -> list[Job]:
        """Take what a worker has ready; return the jobs that its death has left behind."""
        slot = self.pending[debt]
        slot.heard = time.monotonic()
        try:
            if slot.job is not None:
                slot.job.receive(self.ray.get(next(debt)))
                return []
            self.ray.get(debt)
            del self.pending[debt]
            self.failed_starts = 0
        except StopIteration:
            del self.pending[debt]
            assert slot.job is not None
            slot.job.done()
            slot.job = None
        except self.ray.exceptions.RayError as death:
            del self.pending[debt]
            return self._bury(slot, slot.silent or str(death))
        return []

    def _bury(self, slot: Slot, why: str) -> list[Job]:
        self.slots.remove(slot)
        self.ray.kill(slot.worker)
        self.looked = 0.0  # another may take its place at once
        if slot.job is not None:
            return slot.job.lost(why, final=bool(slot.silent))
        self.failed_starts += 1
        if self.failed_starts == MAX_FAILED_STARTS:
            raise UserError(f"Ray: workers die as they start: {why}")
        return []

    def _kill_silent(self) -> None:
        """Kill workers that hang where no alarm reaches them; their death is dealt with as any other."""
        if self.policy.cell_seconds is None:
            return
        for slot in self.slots:
            limit = self.policy.cell_seconds * (slot.job.size if slot.job else 1) + GRACE_SECONDS
            if slot.job is not None and not slot.silent and time.monotonic() - slot.heard > limit:
                slot.silent = f"It had not answered for {limit:.0f} s (run.cell_minutes), and was killed."
                self.ray.kill(slot.worker)


def _knock(address: str) -> None:
    """See whether anybody is at host:port, which Ray itself would wonder about for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():  # "auto", or whatever else Ray may understand
        return
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"--ray-address {address}: nobody answers: {error}. Check it.") from None
