"""What the driver of a run, its workers and the recorder pass to each other: plain data and two protocols."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from tta_bench.api import Domain
from tta_bench.grid import Cell
from tta_bench.planning.tasks import Task
from tta_bench.storage.checkpoints import Checkpoint
from tta_bench.storage.record import Record

StopRequested = Callable[[], bool]


@dataclass(frozen=True)
class RunPolicy:
    """How to run cells; only threads and device may change results, by rounding."""

    threads: int = 1
    device: str = "auto"
    gpus: float = 1.0  # share of a GPU for each worker that uses one
    checkpoint_seconds: float = 300.0  # between two checkpoints inside one domain
    cell_seconds: float | None = None  # time limit of one cell in one run
    share: bool = True  # compute only once what cells or rounds have in common


@dataclass(frozen=True)
class Start:
    """Where a cell continues: the positions that need no computing, and the checkpoint after them."""

    finished: frozenset[int] = frozenset()
    checkpoint: Checkpoint | None = None
    described: bool = False  # the memory of a step is known, or nobody needs it


@dataclass(frozen=True)
class Delivery:
    """Records of one cell that become known together, the checkpoint after them, the cell's description."""

    key: str
    records: list[Record] = field(default_factory=list)
    checkpoint: Checkpoint | None = None
    description: Record | None = None


class Preparation(NamedTuple):
    """The images of one domain, to be made or fetched before cells read them."""

    cell: Cell
    domain: Domain

    def failure(self, why: object) -> str:
        """The message for images that could not be prepared."""
        return f"images of {self.domain}: cannot be made ready: {str(why).strip().splitlines()[-1]}"


def preparations(cells: Sequence[Cell]) -> list[Preparation]:
    """One for every distinct set of images that the cells will read."""
    found: dict[tuple[object, ...], Preparation] = {}
    for cell in cells:
        for domain in cell.visited:
            found.setdefault((cell.data.digest, cell.limit, domain), Preparation(cell, domain))
    return list(found.values())


@dataclass(frozen=True)
class WorkerActivity:
    """What a worker does."""

    node: str
    device: str
    work: str
    since: float  # time of day


class Recorder(Protocol):
    """Receives what a runner produces; nobody else writes results."""

    missing: dict[str, int]  # records that a started cell still lacks, by its key

    def prepared(self, done: int, total: int) -> None:
        """The images of so many domains are prepared."""

    def note(self, text: str) -> None:
        """A message for the user."""

    def started(self, task: Task) -> list[Start]:
        """A task is about to run, for the first time or again; where each of its cells continues."""

    def working(self, workers: Sequence[WorkerActivity]) -> None:
        """What every busy worker does now; called at least once per second."""

    def delivered(self, delivery: Delivery) -> None:
        """Records of one cell, a checkpoint of it, or both."""


class Runner(Protocol):
    """Runs tasks to their end, in any order, and delivers every record once."""

    policy: RunPolicy

    def run(
        self, tasks: Sequence[Task], images: Sequence[Preparation], recorder: Recorder, stop: StopRequested
    ) -> None:
        """Prepare images, then run the tasks; return early, with everything saved, once `stop` is true."""
