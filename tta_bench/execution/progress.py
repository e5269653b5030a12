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
        self.finished, self.start, self.last_line = 0, time.monotonic(), 0.0
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
        if self.seen[cell.key] == cell.records_expected:
            self.finished += 1
        self.time_left.progressed(cell.key, self.seen[cell.key], records, time.monotonic())
        labels = cell.labels
        self._show(f"{labels.model} {cell.bits} {labels.method}", share)

    def _show(self, what: str, share: int) -> None:
        now, total = time.monotonic(), sum(self.seen.values())
        seconds = self.time_left.seconds(now)
        left = "" if seconds is None or total == self.expected else f"about {spell(seconds)} left"
        if self.bars is not None:
            self.bars.update(self.bar, advance=share, description=printable(what), left=left)
            return
        if now - self.last_line < PLAIN_INTERVAL_SECONDS and total < self.expected:
            return
        self.last_line = now
        counts = [f"{total}/{self.expected} records", f"{self.finished}/{len(self.cells)} cells", left]
        self.note(f"[{now - self.start:5.0f} s] {', '.join(filter(None, counts))}: {what}")
