"""What driver and workers tell each other, all of it plain data: where a cell starts, what it delivers."""

from __future__ import annotations

from dataclasses import dataclass, field

from tta_bench.store import Record


@dataclass(frozen=True)
class Policy:
    """How to run; nothing here may change a number, but `threads` and `device` round sums otherwise."""

    threads: int = 1
    device: str = "auto"
    gpus: float = 1.0  # of a GPU, for each worker that has one
    checkpoint_seconds: float = 300.0  # between two checkpoints inside one domain
    cell_seconds: float | None = None  # what one cell may take in one go
    share: bool = True  # compute once what cells or rounds have in common


@dataclass(frozen=True)
class Checkpoint:
    """A cell at rest. The domains of all rounds are counted through, from 0; so are batches in a domain."""

    key: str
    place: int
    batch: int
    content: bytes = field(repr=False)  # of `tree.encode`


@dataclass(frozen=True)
class Start:
    """Where a cell goes on: the places that are recorded already, and the checkpoint after them."""

    finished: frozenset[int] = frozenset()
    checkpoint: Checkpoint | None = None
    described: bool = False  # the bytes of a step are known, or not wanted


@dataclass(frozen=True)
class Delivery:
    """Records of one cell that become known together, the checkpoint that follows them, its description."""

    key: str
    records: list[Record] = field(default_factory=list)
    checkpoint: Checkpoint | None = None
    description: Record | None = None
