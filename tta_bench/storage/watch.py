"""`tta-bench status --watch`: the progress of a run, read from its results folder alone."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

from rich.console import Console, ConsoleDimensions, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tta_bench.storage.record import Record
from tta_bench.storage.status import FINAL, CellStatus, FolderStatus, StatusReader
from tta_bench.storage.store import ResultStore
from tta_bench.storage.time_left import seconds_left
from tta_bench.terminal import printable, spell

INTERVAL_SECONDS = 2.0
QUIET_SECONDS = 600.0  # without any change, after which the run that holds the lock may be dead
LINES_AROUND = 7  # of the display, beside the rows
WIDTH_WITH_BARS = 110
STYLES = {  # by state, in the order in which cells are shown
    "running": "bold cyan",
    "failed": "bold red",
    "done": "green",
    "waiting": "dim",
    "unsupported": "dim",
}


def headline(status: FolderStatus, left: float | None) -> str:
    """Cells, records, workers and time left, in one line without control characters."""
    states = Counter(cell.state for cell in status.cells)
    over = sum(states[state] for state in FINAL)
    done = sum(cell.expected - cell.missing for cell in status.cells)
    expected = sum(cell.expected for cell in status.cells)
    parts = [f"{over}/{len(status.cells)} cells", f"{done}/{expected} records"]
    parts += [f"{states[state]} {state}" for state in ("failed", "unsupported") if states[state]]
    if status.over or not status.holder:
        return ", ".join([*parts, "complete" if status.over else "no run is writing"])
    hosts = Counter(cell.host for cell in status.cells if cell.state == "running")
    working = ", ".join(f"{count} on {host}" for host, count in sorted(hosts.items()))
    parts.append(f"running: {working}" if working else f"held by {status.holder}")
    quiet = status.now - max([status.begun, *(cell.changed for cell in status.cells)])
    if quiet > QUIET_SECONDS:
        parts.append(f"no change for {spell(quiet)}")
    elif left is not None:
        parts.append(f"about {spell(left)} left")
    return printable(", ".join(parts))


def render(status: FolderStatus, left: float | None, size: ConsoleDimensions) -> RenderableType:
    """The display: running and failed cells first, as many cells as fit on the screen."""
    order = list(STYLES)
    ranked = sorted(status.cells, key=lambda cell: (order.index(cell.state), -cell.changed))
    busy = status.workers[: max(size.height // 3, 1)]
    room = max(size.height - LINES_AROUND - (len(busy) + 2 if busy else 0), 3)
    more = Counter(cell.state for cell in ranked[room:])
    tail = "… and " + ", ".join(f"{more[state]} {state}" for state in order if more[state]) if more else ""
    return Group(
        Text(printable(str(status.folder)), style="bold"),
        Text(headline(status, left)),
        Text(),
        _table(ranked[:room], bars=size.width >= WIDTH_WITH_BARS),
        Text(tail, style="dim"),
        *(each for each in (Text(), _workers(busy, status)) if busy),
    )


def _workers(busy: Sequence[Record], status: FolderStatus) -> Table:
    """The node, device and work of each worker, and for how long it has been at it."""
    idle = len(status.workers) - len(busy)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("worker on", "device", "for", f"works on{f' ({idle} more workers)' * bool(idle)}"):
        table.add_column(name, no_wrap=True)
    for row in busy:
        seconds = max(status.now - row["since"], 0.0)
        table.add_row(
            *(Text(printable(text)) for text in (row["node"], row["device"], spell(seconds), row["work"]))
        )
    return table


def _table(cells: Sequence[CellStatus], bars: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("state", "model", "bits", "method"):
        table.add_column(name, no_wrap=True)
    for name in ("seed", "round", "records", "accuracy"):
        table.add_column(name, justify="right", no_wrap=True)
    for cell in cells:
        bar = [ProgressBar(cell.expected, cell.records, width=24)] if bars else []
        table.add_row(*_row(cell), *bar)
    return table


def _row(cell: CellStatus) -> list[RenderableType]:
    per_round = cell.expected // cell.rounds
    current = min(cell.records // per_round + 1, cell.rounds) if cell.records else 0
    return [
        Text(cell.state, style=STYLES[cell.state]),
        *(Text(printable(label)) for label in cell.labels),  # brackets in a name are not markup
        str(cell.seed),
        f"{current}/{cell.rounds}",
        f"{cell.records}/{cell.expected}",
        "" if cell.accuracy is None else f"{cell.accuracy:.1f}",
    ]


def watch(store: ResultStore, console: Console, sleep: Callable[[float], None] = time.sleep) -> None:
    """Show the progress until every cell is in a final state or Ctrl-C is pressed.

    Without a terminal, print a line after each change.
    """
    reader = StatusReader(store)
    first = status = reader.read()
    said = ""
    with suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False) as live:
        while True:
            left = seconds_left(first, status)
            live.update(render(status, left, console.size), refresh=console.is_terminal)
            if not console.is_terminal and headline(status, None) != said:
                said = headline(status, None)
                console.print(headline(status, left), markup=False, soft_wrap=True)
            if status.over:
                return
            sleep(INTERVAL_SECONDS)
            status = reader.read()
