"""What a run shows while it goes: bars with time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars

from tta_bench.store import Record
from tta_bench.terminal import LINES, printable

if TYPE_CHECKING:
    from tta_bench.grid import Cell

PLAIN_INTERVAL_SECONDS = 10.0


class Progress:
    """Follows a run by its records."""

    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet, highlight=False)
        self.bars: Bars | None = None

    def note(self, text: str) -> None:
        """One line about something worth knowing."""
        self.console.print(printable(text, LINES), markup=False, soft_wrap=True)

    @contextmanager
    def running(self, cells: Sequence[Cell], done: int) -> Iterator[None]:
        """Show progress over these cells while the block runs."""
        self.cells = {cell.key: cell for cell in cells}
        self.expected = sum(cell.records_expected for cell in cells)
        self.seen: Counter[str] = Counter()
        self.kept: Counter[str] = Counter()  # of what is seen, the records of earlier runs
        self.finished, self.start, self.last_line = 0, time.monotonic(), 0.0
        already = f", {done} done already" if done else ""
        self.note(f"{len(cells)} cells to run{already}, {self.expected} records.")
        if not self.console.is_terminal:
            yield
            return
        columns = (
            TextColumn("{task.description}", markup=False),  # brackets in a name are no markup
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        with Bars(*columns, console=self.console) as self.bars:
            self.bar = self.bars.add_task("starting", total=self.expected)
            yield
        self.bars = None

    def prepared(self, done: int, total: int) -> None:
        """So many corrupted sets are ready."""
        self._show(f"images {done}/{total}", 0)

    def started(self, cell: Cell, kept: int) -> None:
        """A cell starts, or starts again, with so many records there already."""
        if self.bars is not None:
            self.bars.advance(self.bar, kept - self.seen[cell.key])
        self.seen[cell.key] = self.kept[cell.key] = kept

    def records(self, records: list[Record]) -> None:
        """Records of one cell have arrived."""
        cell = self.cells[records[0]["key"]]
        over = any(r["status"] != "ok" for r in records)
        share = cell.records_expected - self.seen[cell.key] if over else len(records)
        self.seen[cell.key] += share
        if self.seen[cell.key] == cell.records_expected:
            self.finished += 1
        labels = cell.labels
        self._show(f"{labels.model} {cell.bits} {labels.method}", share)

    def _show(self, what: str, share: int) -> None:
        if self.bars is not None:
            self.bars.update(self.bar, advance=share, description=printable(what))
            return
        now, total = time.monotonic(), sum(self.seen.values())
        if now - self.last_line < PLAIN_INTERVAL_SECONDS and total < self.expected:
            return
        self.last_line = now
        spent = now - self.start
        new = total - sum(self.kept.values())
        left = f", about {spent / new * (self.expected - total):.0f} s left" if new else ""
        cells = f"{self.finished}/{len(self.cells)} cells"
        self.note(f"[{spent:5.0f} s] {total}/{self.expected} records, {cells}{left}: {what}")
