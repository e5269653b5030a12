"""`tta-bench status --watch`: a running grid, live, from its results folder alone, wherever that lies."""

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

from tta_bench.folder_view import OVER, CellView, View, Watcher, seconds_left
from tta_bench.store import ResultStore
from tta_bench.terminal import printable

INTERVAL_SECONDS = 2.0
QUIET_SECONDS = 600.0  # without a sign of life, after which the run that holds the folder may be gone
LINES_AROUND = 7  # of the view, beside the rows
WIDTH_WITH_BARS = 110
STYLES = {  # of states, in the order in which they are shown
    "running": "bold cyan",
    "failed": "bold red",
    "done": "green",
    "waiting": "dim",
    "unsupported": "dim",
}


def headline(view: View, left: float | None) -> str:
    """Cells, records, workers and time in one line, fit for a terminal."""
    states = Counter(cell.state for cell in view.cells)
    over = sum(states[state] for state in OVER)
    done = sum(cell.expected - cell.missing for cell in view.cells)
    expected = sum(cell.expected for cell in view.cells)
    parts = [f"{over}/{len(view.cells)} cells", f"{done}/{expected} records"]
    parts += [f"{states[state]} {state}" for state in ("failed", "unsupported") if states[state]]
    if view.over or not view.holder:
        return ", ".join([*parts, "complete" if view.over else "no run is writing"])
    hosts = Counter(cell.host for cell in view.cells if cell.state == "running")
    working = ", ".join(f"{count} on {host}" for host, count in sorted(hosts.items()))
    parts.append(f"running: {working}" if working else f"held by {view.holder}")
    quiet = view.now - max([view.begun, *(cell.changed for cell in view.cells)])
    if quiet > QUIET_SECONDS:
        parts.append(f"no sign of life for {spell(quiet)}")
    elif left is not None:
        parts.append(f"about {spell(left)} left")
    return printable(", ".join(parts))


def spell(seconds: float) -> str:
    """A length of time in the unit that fits it."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"


def render(view: View, left: float | None, size: ConsoleDimensions) -> RenderableType:
    """The view: what runs and what failed first, as many cells as there are lines."""
    order = list(STYLES)
    ranked = sorted(view.cells, key=lambda cell: (order.index(cell.state), -cell.changed))
    room = max(size.height - LINES_AROUND, 3)
    more = Counter(cell.state for cell in ranked[room:])
    tail = "… and " + ", ".join(f"{more[state]} {state}" for state in order if more[state]) if more else ""
    return Group(
        Text(printable(str(view.folder)), style="bold"),
        Text(headline(view, left)),
        Text(),
        _table(ranked[:room], bars=size.width >= WIDTH_WITH_BARS),
        Text(tail, style="dim"),
    )


def _table(cells: Sequence[CellView], bars: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("state", "model", "bits", "method"):
        table.add_column(name, no_wrap=True)
    for name in ("seed", "round", "records", "accuracy"):
        table.add_column(name, justify="right", no_wrap=True)
    for cell in cells:
        bar = [ProgressBar(cell.expected, cell.records, width=24)] if bars else []
        table.add_row(*_row(cell), *bar)
    return table


def _row(cell: CellView) -> list[RenderableType]:
    per_round = cell.expected // cell.rounds
    current = min(cell.records // per_round + 1, cell.rounds) if cell.records else 0
    return [
        Text(cell.state, style=STYLES[cell.state]),
        *(Text(printable(label)) for label in cell.labels),  # brackets in a name are no markup
        str(cell.seed),
        f"{current}/{cell.rounds}",
        f"{cell.records}/{cell.expected}",
        "" if cell.accuracy is None else f"{cell.accuracy:.1f}",
    ]


def watch(store: ResultStore, console: Console, sleep: Callable[[float], None] = time.sleep) -> None:
    """Show the folder until all its cells are over or Ctrl-C is pressed; off a terminal, a line a change."""
    watcher = Watcher(store)
    first = view = watcher.look()
    said = ""
    with suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False) as live:
        while True:
            left = seconds_left(first, view)
            live.update(render(view, left, console.size), refresh=console.is_terminal)
            if not console.is_terminal and headline(view, None) != said:
                said = headline(view, None)
                console.print(headline(view, left), markup=False, soft_wrap=True)
            if view.over:
                return
            sleep(INTERVAL_SECONDS)
            view = watcher.look()
