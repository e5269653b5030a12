"""Writes what a run delivers to the results folder, and decides from that folder where a cell starts."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, replace

from tta_bench.execution.messages import Delivery, Start, WorkerActivity
from tta_bench.execution.progress import RunProgress
from tta_bench.grid import Cell
from tta_bench.planning.sharing import ResolvedCell
from tta_bench.planning.tasks import Task
from tta_bench.storage import workers as store_workers
from tta_bench.storage.checkpoints import Checkpoint, Checkpoints, DamagedCheckpoint
from tta_bench.storage.record import Record, round_and_domain
from tta_bench.storage.store import ResultStore

# A cell's files are not synced more often: that would take longer than a tiny domain. A killed process loses
# nothing that was delivered; a power failure may lose the last seconds.
SYNC_SECONDS = 5.0
WORKERS_SECONDS = 1.0  # between two writes of what the workers do


class ResultRecorder:
    """The recorder of a run: everything goes to the disk first, then to the screen."""

    def __init__(self, store: ResultStore, progress: RunProgress, anew: Sequence[Cell]) -> None:
        self.store, self.progress = store, progress
        self.prepared, self.note = progress.prepared, progress.note
        self.checkpoints = Checkpoints(store.folder)
        self.anew = {cell.key for cell in anew}
        self.workers: Sequence[WorkerActivity] = ()
        self.told = 0.0  # when their work was last written
        self.missing: dict[str, int] = {}  # records, by cell
        self.synced: dict[str, float] = {}  # when, by cell
        self.unsynced: dict[str, list[Record]] = defaultdict(list)  # records since then
        self.failures: dict[str, list[Record]] = defaultdict(list)  # of this run, by cell

    def started(self, task: Task) -> list[Start]:
        self.progress.task_started()
        return [self._start(cell, task.segments) for cell in task.cells]

    def delivered(self, delivery: Delivery) -> None:
        key, now = delivery.key, time.monotonic()
        if delivery.description is not None:
            self.store.describe(key, delivery.description)
        ok = [record for record in delivery.records if record["status"] == "ok"]
        self.missing[key] -= len(ok)
        self.unsynced[key] += ok
        self.failures[key] += [r for r in delivery.records if r["status"] == "failed"]
        done = self.missing[key] == 0
        due = done or now - self.synced.get(key, -SYNC_SECONDS) >= SYNC_SECONDS
        if delivery.checkpoint is not None:  # first: it also holds the records that are not synced yet
            self.checkpoints.save(delivery.checkpoint, self.unsynced[key], sync=due)
        if delivery.records or due:
            self.store.append(key, delivery.records, sync=due)
        if due:
            self.synced[key] = now
            del self.unsynced[key]
        if delivery.records:
            self.progress.records(delivery.records)
        if done:
            self.checkpoints.remove(key)

    def working(self, workers: Sequence[WorkerActivity]) -> None:
        now = time.monotonic()
        if workers != self.workers and (not workers or now - self.told > WORKERS_SECONDS):
            store_workers.write(self.store.folder, [asdict(worker) for worker in workers])
            self.workers, self.told = workers, now

    def _start(self, resolved: ResolvedCell, segments: frozenset[int] | None) -> Start:
        """Where a cell continues according to the disk; records that will be computed again are deleted."""
        cell, key = resolved.cell, resolved.key
        self.store.expect(key, cell.visits, cell.rounds)
        if key in self.anew:
            self.anew.remove(key)
            self.store.forget(key)
            self.checkpoints.remove(key)
        checkpoint, records = self._on_disk(key)
        start, kept = start_of(resolved, records, checkpoint, segments)
        # Where a cell's segments are split over workers, some may have failed before others start.
        self.store.keep(key, kept + self.failures[key])
        self.missing[key] = cell.records_expected - len(kept)
        self.progress.started(cell, len(kept))
        known = self.store.description(key)
        return replace(start, described=known is not None and "memory_bytes" in known)

    def _on_disk(self, key: str) -> tuple[Checkpoint | None, list[Record]]:
        """A cell's checkpoint and all its records; the checkpoint may hold some that its file does not."""
        records = self.store.read(key)
        try:
            found = self.checkpoints.load(key)
        except DamagedCheckpoint as damage:
            self.note(f"{damage}; the cell goes on from its last complete state")
            found = None
        if found is None:
            return None, records
        checkpoint, unlogged = found
        logged = set(map(round_and_domain, records))
        extra = [r for r in unlogged if round_and_domain(r) not in logged and self.store.fits(r)]
        return checkpoint, records + extra


def start_of(
    resolved: ResolvedCell,
    records: Sequence[Record],
    checkpoint: Checkpoint | None,
    segments: frozenset[int] | None = None,
) -> tuple[Start, list[Record]]:
    """Where a cell continues, and which of its records stay; all others are computed again.

    A stateless cell continues at any segment that lacks a record. A cell with state continues at its
    checkpoint, and only if all segments before it are recorded. If a task has only some of the `segments`,
    the others count as finished.
    """
    cell = resolved.cell
    found = {
        round_and_domain(record): record
        for record in records
        if record["status"] == "ok" and record["code"] == cell.code
        # Without sharing, rounds that repeat the first are computed like all others.
        if resolved.repeats or "repeats" not in record
    }
    finished = {i for i in range(resolved.positions) if found.keys() >= resolved.recorded_with(i)}
    if len(found) == cell.records_expected:
        checkpoint = None
    elif not resolved.stateless:
        usable = checkpoint is not None and finished.issuperset(range(checkpoint.position))
        checkpoint = checkpoint if usable else None
        finished = set(range(checkpoint.position)) if checkpoint is not None else set()
    places = {where: resolved.position(where[0], where[1:]) for where in found}
    ordered = sorted(found, key=lambda where: places[where])
    kept = [found[where] for where in ordered if places[where] % resolved.positions in finished]
    if segments is not None:
        finished |= {i for i in range(resolved.positions) if i % resolved.segments not in segments}
    if checkpoint is not None and checkpoint.position in finished:
        checkpoint = None
    return Start(frozenset(finished), checkpoint), kept
