"""Where a run delivers: what arrives goes to the disk first, then to the screen. Nobody else writes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence

from tta_bench.checkpoint import Checkpoints, Damaged
from tta_bench.exchange import Delivery, Start
from tta_bench.grid import Cell
from tta_bench.plan import Task
from tta_bench.progress import Progress
from tta_bench.resume import start_of
from tta_bench.store import Record, ResultStore

# A disk is not waited for more often, cell by cell: that takes longer than a tiny domain. Whatever kills
# processes finds all that was delivered; the last seconds are at risk only where the power fails.
SYNC_SECONDS = 5.0


class Writer:
    """The sink of a run."""

    def __init__(self, store: ResultStore, progress: Progress, anew: Sequence[Cell]) -> None:
        self.store, self.progress = store, progress
        self.checkpoints = Checkpoints(store.folder)
        self.anew = {cell.key for cell in anew}
        self.missing: dict[str, int] = {}  # records, by cell
        self.synced: dict[str, float] = {}  # when, by cell
        self.failures: dict[str, list[Record]] = defaultdict(list)  # of this run, by cell

    def prepared(self, done: int, total: int) -> None:
        self.progress.prepared(done, total)

    def note(self, text: str) -> None:
        self.progress.note(text)

    def started(self, task: Task) -> list[Start]:
        return [self._start(cell) for cell in task.cells]

    def delivered(self, delivery: Delivery) -> None:
        key, now = delivery.key, time.monotonic()
        self.missing[key] -= sum(record.get("status") == "ok" for record in delivery.records)
        done = self.missing[key] == 0
        due = done or now - self.synced.get(key, -SYNC_SECONDS) >= SYNC_SECONDS
        if due:
            self.synced[key] = now
        self.failures[key] += [r for r in delivery.records if r.get("status") == "failed"]
        if delivery.records or due:  # records go first: a checkpoint is of no use without them
            self.store.append(key, delivery.records, sync=due)
        if delivery.records:
            self.progress.records(delivery.records)
        if delivery.checkpoint is not None:
            self.checkpoints.save(delivery.checkpoint, sync=due)
        if done:
            self.checkpoints.remove(key)

    def _start(self, cell: Cell) -> Start:
        """Where the disk says that a cell goes on; what is not part of that is dropped from it."""
        if cell.key in self.anew:
            self.anew.remove(cell.key)
            self.store.keep(cell.key, [])
            self.checkpoints.remove(cell.key)
        try:
            checkpoint = self.checkpoints.load(cell.key)
        except Damaged as damage:
            self.note(f"{damage}; the cell goes on from its last complete state")
            checkpoint = None
        start, kept = start_of(cell, self.store.read(cell.key), checkpoint)
        # Where a cell's domains are spread over workers, some may have failed before others start.
        self.store.keep(cell.key, kept + self.failures[cell.key])
        there = len(kept) - start.described
        self.missing[cell.key] = cell.records_expected - there
        self.progress.started(cell, there)
        return start
