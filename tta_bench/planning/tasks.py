"""Cells → tasks: cells that can share passes through the backbone become one task."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from operator import itemgetter

from tta_bench.grid import Cell
from tta_bench.planning.sharing import ResolvedCell, pass_identity, resolve
from tta_bench.plugins import registry
from tta_bench.plugins.identity import PluginIdentity


@dataclass(frozen=True)
class Task:
    """Cells over the same model, quantizer and stream, which one worker runs together."""

    cells: tuple[ResolvedCell, ...]
    segments: frozenset[int] | None = None  # which segments of every round to run; None: all

    @property
    def network(self) -> tuple[str, str]:
        """Digests of the model and quantizer that a worker must have in memory for it."""
        cell = self.cells[0].cell
        return (cell.model.digest, cell.quantizer.digest)


@dataclass(frozen=True)
class PassCount:
    """Batch passes that a grid costs: forward passes, and backward passes counted as two."""

    naive: int
    executed: int


def tasks(cells: Sequence[Cell], share: bool = True) -> list[Task]:
    """Tasks in the order in which to start them: the longest first, so that none runs alone at the end."""
    shared: dict[tuple[object, ...], list[ResolvedCell]] = {}
    found = []
    for cell in (resolve(cell, share) for cell in cells):
        if cell.share and cell.reads_features:
            shared.setdefault(pass_identity(cell.cell), []).append(cell)
        else:
            found.append(Task((cell,)))
    found += [Task(tuple(group)) for group in shared.values()]
    return sorted(found, key=task_passes, reverse=True)


def split(found: Sequence[Task], workers: int) -> list[Task]:
    """Tasks, the longest first; long tasks without state across segments are split over workers.

    Every part has to set up its methods, so tasks are not split further than it takes to keep workers busy.
    """
    if workers < 2:
        return list(found)
    part = sum(map(task_passes, found)) / (2 * workers)
    parts = [each for task in found for each in _parts(task, math.ceil(task_passes(task) / part))]
    return sorted(parts, key=task_passes, reverse=True)


def _parts(task: Task, wanted: int) -> Iterator[Task]:
    """A task in parts of neighbouring segments, if its cells are stateless across segments."""
    segments = task.cells[0].segments
    count = min(wanted, segments) if all(cell.stateless for cell in task.cells) else 1
    for i in range(count):
        part = frozenset(range(i * segments // count, (i + 1) * segments // count))
        yield task if count == 1 else replace(task, segments=part)


def passes(cells: Sequence[Cell]) -> PassCount:
    """What a grid costs, and what it would cost if every cell and round ran on its own."""
    found = tasks(cells)
    naive = sum(
        round_batches(each.cell) * each.cell.rounds * each.step_passes
        for task in found
        for each in task.cells
    )
    return PassCount(round(naive), round(sum(map(task_passes, found))))


def task_passes(task: Task) -> float:
    """Batch passes of one task; equal features are computed once, rounds that repeat are not run."""
    resolved = task.cells[0]
    cell, indices = resolved.cell, range(resolved.segments) if task.segments is None else task.segments
    if resolved.reads_features:
        by_round = groupby(resolved.passed(indices), key=itemgetter(0))
        return sum(_batches_of(cell, round, [index for _, index in places]) for round, places in by_round)
    rounds = 1 if resolved.repeats else cell.rounds
    return _batches_of(cell, 1, indices) * rounds * resolved.step_passes


def images(cell: Cell) -> int:
    """Images per domain, as far as that is known before any is read."""
    return cell.count(_expected_images(json.dumps([cell.data.use, cell.data.params], sort_keys=True)))


@lru_cache(maxsize=64)
def _expected_images(data: str) -> int:
    """The number of test images of data with these parameters; it is asked for every cell of a grid."""
    use, params = json.loads(data)
    with registry.asking("data", use):
        found: int = PluginIdentity("data", use, params).make().expected_images()
    return found


def round_images(cell: Cell) -> int:
    """Images in one round, as far as that is known before any is read."""
    return sum(cell.schedule.lengths(1, images(cell)))


def kept_images(resolved: ResolvedCell) -> int:
    """Images whose features are computed, and kept if they are read again."""
    count, schedule = images(resolved.cell), resolved.schedule
    passed = resolved.passed(range(resolved.segments))
    return sum(schedule.lengths(round, count)[index] for round, index in passed)


def segment_batches(cell: Cell) -> int:
    """Batches of the longest segment, as far as that is known before any image is read."""
    return max(_batches(cell, 1))


def round_batches(cell: Cell) -> int:
    """Batches in one round."""
    return sum(_batches(cell, 1))


def _batches_of(cell: Cell, round: int, indices: Iterable[int]) -> int:
    """Batches of some segments of a round."""
    batches = _batches(cell, round)
    return sum(batches[index] for index in indices)


def _batches(cell: Cell, round: int) -> list[int]:
    """Batches of every segment of a round."""
    return [-(-length // cell.batch_size) for length in cell.schedule.lengths(round, images(cell))]
