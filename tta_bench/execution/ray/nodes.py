"""The nodes of a cluster: how many workers fit on each, and which are left out, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tta_bench.errors import UserError
from tta_bench.execution.messages import RunPolicy
from tta_bench.execution.ray.capacity import capacity, no_capacity

MAX_FAILED_STARTS = 5  # in a row, of the workers of one node


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
    known: dict[str, ClusterNode] = field(default_factory=dict)

    def update(self, found: Sequence[Mapping[str, Any]]) -> None:
        """Take over Ray's list of nodes: some may have left, or joined."""
        for row in found:
            node = self.known.setdefault(
                row["NodeID"], ClusterNode(row["NodeID"], row["NodeManagerAddress"], row["Resources"])
            )
            node.alive, node.resources = row["Alive"], row["Resources"] or node.resources

    def all_examined(self) -> None:
        """The nodes need no examination: they are this machine."""
        for node in self.known.values():
            node.examined = True

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
