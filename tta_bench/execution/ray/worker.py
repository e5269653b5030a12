"""The code that runs in a Ray process: an executor that stops when the driver asks for it.

Ray imports this module on the node, so it imports only the standard library: `ready` tells what a node lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tta_bench.execution.ray.stop_flag import StopFlag
from tta_bench.execution.ray.versions import other_versions

if TYPE_CHECKING:
    from tta_bench.api import Domain
    from tta_bench.execution.executor import Executor
    from tta_bench.execution.messages import Delivery, Start
    from tta_bench.execution.ray.requirements import Requirements
    from tta_bench.grid import Cell
    from tta_bench.planning.tasks import Task


class Worker:
    """A Ray actor; it keeps models, calibrations and data in memory between tasks."""

    executor: Executor

    def __init__(self, policy: Mapping[str, Any], stop: StopFlag) -> None:
        self.policy, self.stop = policy, stop

    def ready(self, versions: Mapping[str, str]) -> list[str]:
        """Why this process cannot compute; returning shows that it has started."""
        found = other_versions(versions)
        if found:  # the rest would fail for the same reason
            return found
        try:
            from tta_bench.execution.executor import Executor
            from tta_bench.execution.messages import RunPolicy

            self.executor = Executor(RunPolicy(**self.policy))
        except Exception as error:  # whatever the installation of this node lacks
            return [_reason(error)]
        return []

    def examine(self, wanted: Requirements, device: str) -> list[str]:
        """Why this node cannot run the cells, each reason with a remedy."""
        try:
            from tta_bench.execution.ray.requirements import problems

            return problems(wanted, device)
        except Exception as error:  # a plugin of this node may do anything
            return [_reason(error)]

    def prepare(self, cell: Cell, domain: Domain) -> Iterator[str]:
        """Prepare the images of one domain; yields the reason if that fails."""
        try:
            self.executor.prepare(cell, domain)
        except Exception as error:  # the cells that need these images will fail with the full reason
            yield str(error)

    def run(self, task: Task, starts: Sequence[Start]) -> Iterator[Delivery]:
        """Records and checkpoints of a task as they are made."""
        yield from self.executor.run(task.cells, starts, self.stop)


def _reason(error: Exception) -> str:
    """An error as the reason why a node is left out, with a remedy."""
    from tta_bench.errors import UserError

    if isinstance(error, UserError):
        return str(error).rstrip(".")
    return (
        f"{type(error).__name__}: {error}. Install tta-bench with all it needs there "
        "(`pip install tta-bench`), and run `tta-bench doctor`"
    )
