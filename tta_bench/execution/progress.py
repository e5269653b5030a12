"""Progress of a run: a bar with the remaining time on a terminal or in a notebook, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich import progress as bar
from rich.console import Console

from tta_bench.execution.notebook_progress import NotebookProgress
from tta_bench.planning.tasks import tasks
from tta_bench.planning.time_left import TimeLeft, planned_work
from tta_bench.storage.record import Record
from tta_bench.terminal import LINES, printable, spell

if TYPE_CHECKING:
    from tta_bench.grid import Cell

PLAIN_INTERVAL_SECONDS = 10.0
ESTIMATE_SECONDS = 1.0  # between two estimates of the remaining time on a terminal


class RunProgress:
    """Shows how many records of a run are done."""

    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet, highlight=False)
        self.bars: bar.Progress | None = None

    def note(self, text: str) -> None:
        """Print one message."""
        self.console.print(printable(text, LINES), markup=False, soft_wrap=True)

    @contextmanager
    def running(self, cells: Sequence[Cell], done: int, share: bool = True) -> Iterator[None]:
        """Show progress over these cells while the block runs; `share` as in the policy of the run."""
        self.cells = {cell.key: cell for cell in cells}
        self.expected = sum(cell.records_expected for cell in cells)
        self.seen: Counter[str] = Counter()
        self.total = self.finished = 0  # records and cells
        self.start, self.last_line, self.estimated, self.left = time.monotonic(), 0.0, 0.0, ""
        self.time_left = TimeLeft(planned_work(tasks(cells, share)))
        already = f", {done} done already" if done else ""
        self.note(f"{len(cells)} cells to run{already}, {self.expected} records.")
        if not (self.console.is_terminal or self.console.is_jupyter):
            yield
            return
        columns = (
            bar.TextColumn("{task.description}", markup=False),  # a name may contain brackets
            bar.BarColumn(),
            bar.MofNCompleteColumn(),
            bar.TimeElapsedColumn(),
            bar.TextColumn("{task.fields[left]}"),
        )
        kind = NotebookProgress if self.console.is_jupyter else bar.Progress
        with kind(*columns, console=self.console) as self.bars:
            self.bar = self.bars.add_task("starting", total=self.expected, left="")
            yield
        self.bars = None

    def prepared(self, done: int, total: int) -> None:
        """The images of so many domains are prepared."""
        self._show(f"images {done}/{total}", 0)

    def started(self, cell: Cell, kept: int) -> None:
        """A cell starts, or starts again, and has so many records already."""
        if self.bars is not None:
            self.bars.advance(self.bar, kept - self.seen[cell.key])
        self.total += kept - self.seen[cell.key]
        self.seen[cell.key] = kept
        self.time_left.progressed(cell.key, kept, [], time.monotonic())

    def task_started(self) -> None:
        """A worker has got one more task."""
        self.time_left.task_started()

    def records(self, records: list[Record]) -> None:
        """Count new records of one cell."""
        cell = self.cells[records[0]["key"]]
        over = any(r["status"] != "ok" for r in records)
        share = cell.records_expected - self.seen[cell.key] if over else len(records)
        self.seen[cell.key] += share
        self.total += share
        if self.seen[cell.key] == cell.records_expected:
            self.finished += 1
        self.time_left.progressed(cell.key, self.seen[cell.key], records, time.monotonic())
        labels = cell.labels
        self._show(f"{labels.model} {cell.bits} {labels.method}", share)

    def _show(self, what: str, share: int) -> None:
        now = time.monotonic()
        if self.bars is not None:
            if now - self.estimated >= ESTIMATE_SECONDS or self.total == self.expected:
                self.estimated, self.left = now, self._time_left(now)
            self.bars.update(self.bar, advance=share, description=printable(what), left=self.left)
            return
        if now - self.last_line < PLAIN_INTERVAL_SECONDS and self.total < self.expected:
            return
        self.last_line = now
        counts = [f"{self.total}/{self.expected} records", f"{self.finished}/{len(self.cells)} cells"]
        counts += filter(None, [self._time_left(now)])
        self.note(f"[{now - self.start:5.0f} s] {', '.join(counts)}: {what}")

    def _time_left(self, now: float) -> str:
        """The estimate of the remaining time; empty if there is none, or nothing is left."""
        seconds = None if self.total == self.expected else self.time_left.seconds(now)
        return "" if seconds is None else f"about {spell(seconds)} left"
