"""Where a run delivers: what arrives goes to the disk first, then to the screen. Nobody else writes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from tta_bench.checkpoint import Checkpoints, Damaged
from tta_bench.exchange import Checkpoint, Delivery, Start
from tta_bench.grid import Cell
from tta_bench.plan import Task
from tta_bench.progress import Progress
from tta_bench.resume import start_of
from tta_bench.store import Record, ResultStore, place_of

# A disk is not waited for more often, cell by cell: that takes longer than a tiny domain. Whatever kills
# processes finds all that was delivered; the last seconds are at risk only where the power fails.
SYNC_SECONDS = 5.0


class Writer:
    """The sink of a run."""

    def __init__(
        self, store: ResultStore, progress: Progress, anew: Sequence[Cell], share: bool = True
    ) -> None:
        self.store, self.progress, self.share = store, progress, share
        self.checkpoints = Checkpoints(store.folder)
        self.anew = {cell.key for cell in anew}
        self.missing: dict[str, int] = {}  # records, by cell
        self.synced: dict[str, float] = {}  # when, by cell
        self.unsynced: dict[str, list[Record]] = defaultdict(list)  # records since then
        self.failures: dict[str, list[Record]] = defaultdict(list)  # of this run, by cell

    def prepared(self, done: int, total: int) -> None:
        self.progress.prepared(done, total)

    def note(self, text: str) -> None:
        self.progress.note(text)

    def started(self, task: Task) -> list[Start]:
        return [self._start(cell) for cell in task.cells]

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
        if delivery.checkpoint is not None:  # first: with the records in it, it is complete by itself
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

    def _start(self, cell: Cell) -> Start:
        """Where the disk says that a cell goes on; what is not part of that is dropped from it."""
        key = cell.key
        self.store.expect(key, cell.domains, cell.rounds)
        if key in self.anew:
            self.anew.remove(key)
            self.store.forget(key)
            self.checkpoints.remove(key)
        checkpoint, records = self._on_disk(key)
        start, kept = start_of(cell, records, checkpoint, self.share)
        # Where a cell's domains are spread over workers, some may have failed before others start.
        self.store.keep(key, kept + self.failures[key])
        self.missing[key] = cell.records_expected - len(kept)
        self.progress.started(cell, len(kept))
        known = self.store.description(key)
        return replace(start, described=known is not None and "memory_bytes" in known)

    def _on_disk(self, key: str) -> tuple[Checkpoint | None, list[Record]]:
        """The cell's checkpoint, and its records: those of the log and those that only it has."""
        records = self.store.read(key)
        try:
            found = self.checkpoints.load(key)
        except Damaged as damage:
            self.note(f"{damage}; the cell goes on from its last complete state")
            found = None
        if found is None:
            return None, records
        checkpoint, unlogged = found
        logged = set(map(place_of, records))
        extra = [r for r in unlogged if place_of(r) not in logged and self.store.fits(r)]
        return checkpoint, records + extra
