"""Cells → tasks: cells that can share passes through the backbone become one task."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tta_bench import registry
from tta_bench.api import Method
from tta_bench.exchange import Start
from tta_bench.grid import Cell


@dataclass(frozen=True)
class Task:
    """Cells over the same model, quantizer and stream, run by one worker in one go."""

    cells: tuple[Cell, ...]
    domains: frozenset[int] | None = None  # of the stream, those to run; None: all, in their order

    @property
    def place(self) -> tuple[str, str]:
        """What a worker keeps warm for it."""
        return (self.cells[0].model.digest, self.cells[0].quantizer.digest)


@dataclass(frozen=True)
class Passes:
    """Batch passes (forward, with backward counted as two) that a grid costs."""

    naive: int
    executed: int


def make_method(cell: Cell) -> Method:
    """A cell's method with its parameters, not yet set up."""
    return cell.method.make()


def forgets(cell: Cell, method: Method) -> bool:
    """Whether a domain's numbers do not depend on what came before it."""
    return method.memory in ("none", "batch") or cell.reset == "domain"


def repeats(cell: Cell, method: Method) -> bool:
    """Whether every round must give what the first one gave, so that one is enough.

    True for what has no memory, and for what forgets at every domain, as long as the same batches
    come again.
    """
    return forgets(cell, method) and cell.order != "reshuffled"


def rereads(cell: Cell, method: Method) -> bool:
    """Whether later rounds read the features of earlier ones again."""
    again = cell.rounds > 1 and cell.order != "reshuffled"
    return again and method.consumes == "features" and not repeats(cell, method)


def tasks(cells: Sequence[Cell], share: bool = True) -> list[Task]:
    """Tasks in the order in which to start them: the longest first, so that none straggles."""
    shared: dict[tuple[object, ...], list[Cell]] = {}
    found = []
    for cell in cells:
        if share and make_method(cell).consumes == "features":
            shared.setdefault(_pass_identity(cell), []).append(cell)
        else:
            found.append(Task((cell,)))
    found += [Task(tuple(group)) for group in shared.values()]
    return sorted(found, key=task_passes, reverse=True)


def spread(found: Sequence[Task], workers: int) -> list[Task]:
    """Tasks, the longest first, with those cut up that would leave workers idle in the end.

    Only what forgets at every domain can be cut; each piece is set up anew, so there are no more than needed.
    """
    if workers < 2:
        return list(found)
    piece = sum(map(task_passes, found)) / (2 * workers)
    cut = [part for task in found for part in _cut(task, math.ceil(task_passes(task) / piece))]
    return sorted(cut, key=task_passes, reverse=True)


def narrowed(start: Start, cell: Cell, domains: frozenset[int] | None) -> Start:
    """The start of a cell of which only some domains are run here."""
    if domains is None:
        return start
    count = len(cell.domains)
    others = {place for place in range(count * cell.rounds) if place % count not in domains}
    return replace(start, finished=start.finished | others)


def passes(cells: Sequence[Cell]) -> Passes:
    """What a grid costs, and what it would cost if every cell and round ran on its own."""
    naive = sum(_batches(cell) * cell.rounds * step_passes(make_method(cell)) for cell in cells)
    return Passes(round(naive), round(sum(task_passes(task) for task in tasks(cells))))


def task_passes(task: Task) -> float:
    """Batch passes of one task; features are computed once, rounds that repeat are not run."""
    cell = task.cells[0]
    method = make_method(cell)
    part = 1.0 if task.domains is None else len(task.domains) / len(cell.domains)
    if method.consumes == "features":
        rounds = cell.rounds if cell.order == "reshuffled" else 1
        return part * _batches(cell) * rounds
    rounds = 1 if repeats(cell, method) else cell.rounds
    return part * _batches(cell) * rounds * step_passes(method)


def _pass_identity(cell: Cell) -> tuple[object, ...]:
    stream = (cell.domains, cell.rounds, cell.batch_size, cell.limit, cell.order, cell.seed)
    plugins = (cell.data, cell.model, cell.quantizer, *cell.corruptions)
    return (*(plugin.digest for plugin in plugins), stream, cell.threads)


def _cut(task: Task, pieces: int) -> Iterator[Task]:
    """A task in pieces of neighbouring domains, if its cells forget at every domain."""
    count = len(task.cells[0].domains)
    pieces = min(pieces, count) if all(forgets(cell, make_method(cell)) for cell in task.cells) else 1
    for i in range(pieces):
        part = frozenset(range(i * count // pieces, (i + 1) * count // pieces))
        yield task if pieces == 1 else replace(task, domains=part)


def images(cell: Cell) -> int:
    """Images of a domain, as far as that is known before any is read."""
    size: int = registry.load("data", cell.data.use).size
    return min(cell.limit or size, size)


def batches_of_domain(cell: Cell) -> int:
    """Batches of one domain, likewise."""
    return -(-images(cell) // cell.batch_size)


def _batches(cell: Cell) -> int:
    """Batches in one round."""
    return len(cell.domains) * batches_of_domain(cell)


def step_passes(method: Method) -> float:
    """Passes a batch, from the declared forwards/backwards (of a range, its lower end)."""
    forward, backward = method.passes_of_step()
    return forward + 2 * backward
