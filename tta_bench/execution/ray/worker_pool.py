"""The workers of a run: started where there is room, and dropped with their nodes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tta_bench.execution.messages import RunPolicy
from tta_bench.execution.ray.jobs import Job
from tta_bench.execution.ray.nodes import MAX_FAILED_STARTS, ClusterNode, Nodes
from tta_bench.execution.ray.requirements import Requirements
from tta_bench.execution.ray.stop_flag import StopFlag
from tta_bench.execution.ray.worker import Worker

START_SECONDS = 600.0  # for the first worker of a node; a cold disk on which all nodes load PyTorch is slow
SLOW_START = (
    f"no worker has started there in {START_SECONDS / 60:.0f} minutes. `ray status` shows whether other work "
    "uses its CPUs and GPUs; end that, or repair the node"
)


@dataclass(eq=False)
class WorkerState:
    """A worker, the network it has in memory, and what it does."""

    worker: Any
    node: ClusterNode
    device: str = "cpu"
    network: tuple[str, str] | None = None
    job: Job | None = None
    ready: bool = False  # its process has started
    examines: bool = False  # it examines its node
    began: float = 0.0  # time of day at which its job began
    answered: float = 0.0  # when it last answered, or was created
    killed_because: str = ""

    @property
    def idle(self) -> bool:
        """Whether it waits for a job."""
        return self.ready and self.job is None and not self.examines


@dataclass
class WorkerPool:
    """All workers of a run, and what they have not answered yet."""

    ray: Any
    policy: RunPolicy
    nodes: Nodes
    stop_flag: StopFlag
    required: Requirements | None = None  # of the nodes of a cluster at an address
    states: list[WorkerState] = field(default_factory=list)
    pending: dict[Any, WorkerState] = field(default_factory=dict)  # by pending Ray reference

    def fill(self, jobs: int) -> None:
        """Start workers wherever there is room, as many as there are jobs."""
        wanted = sum(state.job is not None for state in self.states) + jobs
        running = Counter((state.node.id, state.device) for state in self.states)
        for node, device, room in self.nodes.rooms():
            for _ in range(min(room - running[node.id, device], wanted - len(self.states))):
                self.start(node, device)

    def start(self, node: ClusterNode, device: str) -> None:
        """Start a worker on a node; Ray lets it see only the GPU that it may use."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        policy = self.policy if device == "gpu" else replace(self.policy, device="cpu", gpus=0)
        make = self.ray.remote(num_cpus=policy.threads, num_gpus=policy.gpus)(Worker)
        here = NodeAffinitySchedulingStrategy(node.id, soft=False)
        worker = make.options(scheduling_strategy=here).remote(asdict(policy), self.stop_flag)
        state = WorkerState(worker, node, device, answered=time.monotonic())
        self.states.append(state)
        self.pending[worker.ready.remote(self.required.versions if self.required else {})] = state

    def usable(self) -> list[WorkerState]:
        """The workers that wait for a job. A node that has not been examined gets one of them for that."""
        idle = [state for state in self.states if state.idle]
        examined = {state.node.id for state in self.states if state.examines}
        for state in idle:
            if not state.node.examined and state.node.id not in examined:
                examined.add(state.node.id)
                state.examines = True
                self.pending[state.worker.examine.remote(self.required, state.device)] = state
        return [state for state in idle if state.node.examined]

    def answered(self, state: WorkerState, problems: Sequence[str]) -> list[Job]:
        """A worker has started or examined its node; returns the jobs that its node gives back."""
        if problems:
            return self.leave_out(state.node, ". ".join(problems))
        state.node.failed_starts = 0
        state.node.examined |= state.examines
        state.ready, state.examines = True, False
        return []

    def failed(self, state: WorkerState, why: str) -> list[Job]:
        """A worker without a job has died; after several in a row, returns the jobs of the whole node."""
        node = state.node
        node.failed_starts += 1
        if any(other.job for other in self.states if other.node is node):
            node.failed_starts = 0
        elif node.failed_starts == MAX_FAILED_STARTS:
            return self.leave_out(node, f"workers die as they start: {why.rstrip('.')}")
        return []

    def drop_lost(self) -> None:
        """Forget the workers of lost nodes that have no job; Ray tells of the others by itself."""
        for state in [state for state in self.states if not state.node.alive and state.job is None]:
            self.forget(state)

    def leave_out_silent(self) -> list[Job]:
        """Leave out nodes on which no worker has started in time."""
        now, started = time.monotonic(), {state.node.id for state in self.states if state.ready}
        late = [state for state in self.states if not state.ready and now - state.answered > START_SECONDS]
        nodes = {state.node.id: state.node for state in late if state.node.id not in started}
        return [job for node in nodes.values() for job in self.leave_out(node, SLOW_START)]

    def leave_out(self, node: ClusterNode, why: str) -> list[Job]:
        """Use a node no longer; returns the jobs of its workers, which others must do."""
        there = [state for state in self.states if state.node is node]
        for state in there:
            self.forget(state)
        self.nodes.leave_out(node, why)
        return [state.job for state in there if state.job is not None]

    def forget(self, state: WorkerState) -> None:
        """End a worker; its answers are ignored."""
        self.states.remove(state)
        self.pending = {key: other for key, other in self.pending.items() if other is not state}
        self.ray.kill(state.worker)
