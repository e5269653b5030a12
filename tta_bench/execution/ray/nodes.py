"""The nodes of a cluster: how many workers fit on each, and which are left out, and why."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tta_bench.errors import UserError
from tta_bench.execution.messages import RunPolicy
from tta_bench.execution.ray.capacity import capacity, no_capacity

MAX_FAILED_STARTS = 5  # in a row, of the workers of one node
JOIN_SECONDS = 600.0  # for a node to join a cluster in which no worker has room


@dataclass
class ClusterNode:
    """A node, as far as the run knows it."""

    id: str
    name: str  # its address
    resources: Mapping[str, float]
    alive: bool = True
    examined: bool = False  # it has all that the run needs
    left_out: str = ""  # why it gets no workers
    failed_starts: int = 0


@dataclass
class Nodes:
    """All nodes that a run has seen."""

    policy: RunPolicy
    workers: int | str
    note: Callable[[str], None]
    may_join: bool = False  # a cluster at an address may get other nodes; our own is this machine
    known: dict[str, ClusterNode] = field(default_factory=dict)
    had_room: bool = False  # for a worker, at any time
    full_since: float | None = None  # when the last room was lost, or not found

    def update(self, found: Sequence[Mapping[str, Any]]) -> None:
        """Take over Ray's list of nodes: some may have left, or joined."""
        begun = bool(self.known)
        for row in found:
            id, name, alive = row["NodeID"], row["NodeManagerAddress"], row["Alive"]
            before = self.known.get(id)
            node = before or ClusterNode(id, name, row["Resources"], alive, examined=not self.may_join)
            self.known[id] = node
            if before is None and alive and begun:
                self.note(f"Node {name} has joined.")
            elif node.alive and not alive:
                self.note(f"Node {name} is lost.")
            node.alive, node.resources = alive, row["Resources"] or node.resources
        self._check_room()

    def _check_room(self) -> None:
        """An error if no worker has room; where nodes may join, only if none has joined in time."""
        now = time.monotonic()
        if self.total():
            self.had_room, self.full_since = True, None
        elif not self.may_join:
            died = "Ray has died. All records are kept; run the same command again to continue."
            raise UserError(died if self.had_room else f"Ray: {self.nowhere()}")
        elif self.full_since is None:
            self.full_since = now
            limit = f"Waiting up to {JOIN_SECONDS / 60:.0f} minutes for a node to join."
            self.note(f"No node has room for a worker: {self.nowhere()} {limit}")
        elif now - self.full_since > JOIN_SECONDS:
            raise UserError(
                f"Ray: in {JOIN_SECONDS / 60:.0f} minutes no node has joined that has room for a worker. "
                f"Then: {self.nowhere()} All records are kept; the same command continues."
            )

    def rooms(self) -> Iterator[tuple[ClusterNode, str, int]]:
        """Node, device and number of workers, wherever there is room; GPUs first, up to `workers` in all."""
        nodes = [node for node in self.known.values() if node.alive and not node.left_out]
        left = 2**31 if self.workers == "auto" else int(self.workers)
        for device in ("gpu", "cpu"):
            for node in nodes:
                room = min(capacity([node.resources], self.policy)[device], left)
                left -= room
                if room:
                    yield node, device, room

    def total(self) -> int:
        """How many workers fit in all."""
        return sum(room for _, _, room in self.rooms())

    def leave_out(self, node: ClusterNode, why: str) -> None:
        """Use a node no longer, and say why; an error if it was the last one."""
        node.left_out = why
        self.note(f"Node {node.name} is left out: {why}.")
        if not self.total():
            raise UserError(f"Ray: {self.nowhere()}")

    def nowhere(self) -> str:
        """Why there is no room for any worker."""
        reasons = [f"node {node.name}: {node.left_out}." for node in self.known.values() if node.left_out]
        if not reasons:
            return no_capacity(self.policy)
        return "\n".join(["no node fits this run.", *reasons, "Then run the same command again."])
