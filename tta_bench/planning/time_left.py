"""The time that a run still needs: the passes that its plan counts, at the cost of those made so far."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tta_bench.planning.sharing import ResolvedCell
from tta_bench.planning.tasks import Task, round_batches, task_passes
from tta_bench.storage.record import Record

Network = tuple[str, str]  # digests of model and quantizer; a pass through it has one cost

# At the start, when few records have come, the number of started tasks counts as the pace.
SETTLING_SECONDS = 10.0


@dataclass(frozen=True)
class PlannedWork:
    """What one cell costs according to the plan, in batch passes; a backward pass counts as two."""

    network: Network
    passes: float  # shared passes count in equal parts for the cells that share them
    records: int  # with so many records, all its passes have been made
    passes_of_record: float  # the passes that a record is charged for, shared or not


def planned_work(found: Iterable[Task]) -> dict[str, PlannedWork]:
    """The planned work of all cells of some tasks, by key."""
    return {cell.key: _planned(task, cell) for task in found for cell in task.cells}


def _planned(task: Task, resolved: ResolvedCell) -> PlannedWork:
    cell = resolved.cell
    step_passes = 1 if resolved.reads_features else resolved.step_passes
    return PlannedWork(
        network=task.network,
        passes=task_passes(task) / len(task.cells),
        records=cell.records_expected // (cell.rounds if resolved.rereads else 1),
        passes_of_record=round_batches(cell) * cell.rounds * step_passes / cell.records_expected,
    )


class TimeLeft:
    """Estimates the remaining time of a run; time spent before the first record (calibration) is no pace."""

    def __init__(self, work: Mapping[str, PlannedWork]) -> None:
        self.work = work
        self.done = dict.fromkeys(work, 0.0)  # the share of each cell's passes that is made
        self.passes_left: defaultdict[Network, float] = defaultdict(float)
        for planned in work.values():
            self.passes_left[planned.network] += planned.passes
        self.tasks_started = 0
        # At the first record: the time, the number of tasks, and the passes that were left.
        self.first: tuple[float, int, dict[Network, float]] | None = None
        self.seconds_of: defaultdict[Network, float] = defaultdict(float)
        self.passes_of: defaultdict[Network, float] = defaultdict(float)

    def task_started(self) -> None:
        """One more task has been given to a worker."""
        self.tasks_started += 1

    def progressed(self, key: str, seen: int, new: Sequence[Record], now: float) -> None:
        """A cell has so many records, of which these are new."""
        planned = self.work[key]
        share = min(1.0, seen / planned.records)
        self.passes_left[planned.network] -= (share - self.done[key]) * planned.passes
        self.done[key] = share
        computed = [record for record in new if record["status"] == "ok" and "repeats" not in record]
        if not computed:
            return
        self.seconds_of[planned.network] += sum(record["seconds"] for record in computed)
        self.passes_of[planned.network] += len(computed) * planned.passes_of_record
        if self.first is None:
            self.first = (now, max(self.tasks_started, 1), dict(self.passes_left))

    def seconds(self, now: float) -> float | None:
        """The estimated wall time until the run is over; None before the first record."""
        if self.first is None:
            return None
        then, tasks, left = self.first
        made = {network: left[network] - passes for network, passes in self.passes_left.items()}
        pace = (tasks * SETTLING_SECONDS + self._cost(made)) / (SETTLING_SECONDS + now - then)
        return max(0.0, self._cost(self.passes_left)) / pace  # sums of floats may end below 0

    def _cost(self, passes: Mapping[Network, float]) -> float:
        """Seconds of computation of these passes; networks without a record cost the mean."""
        known = {network: self.seconds_of[network] / self.passes_of[network] for network in self.passes_of}
        mean = sum(known.values()) / len(known)
        return sum(count * known.get(network, mean) for network, count in passes.items())
