"""How long the rest of a run will take, from the status of its results folder at two moments."""

from __future__ import annotations

from collections import defaultdict

from tta_bench.storage.status import CellStatus, FolderStatus


def seconds_left(first: FolderStatus, last: FolderStatus) -> float | None:
    """How long the rest will take at the pace since `first`; None before anything was computed."""
    pace = _pace(first, last)
    return None if pace is None else sum(_work(last)) / pace


def _pace(first: FolderStatus, last: FolderStatus) -> float | None:
    """Seconds of computation per second, all workers of all machines together."""
    spent = sum(cell.seconds for cell in last.cells) - sum(cell.seconds for cell in first.cells)
    elapsed = last.now - first.now
    if spent <= 0:  # nothing is new since then: use all cells that this run has written to
        spent = sum(cell.seconds for cell in last.cells if cell.changed >= last.begun)
        elapsed = last.now - last.begun
    return spent / elapsed if last.holder and spent > 0 and elapsed > 0 else None


def _work(status: FolderStatus) -> list[float]:
    """Seconds of computation left in each cell, at its own cost per record or that of similar cells."""
    costs: defaultdict[tuple[str, ...], list[float]] = defaultdict(list)
    for cell in status.cells:
        if cell.records:
            for group in _groups(cell):
                costs[group].append(cell.seconds / cell.records)
    means = {group: sum(found) / len(found) for group, found in costs.items()}
    work = []
    for cell in status.cells:
        own = cell.seconds / cell.records if cell.records else None
        cost = own if own is not None else next((means[g] for g in _groups(cell) if g in means), 0.0)
        work.append(cell.missing * cost)
    return work


def _groups(cell: CellStatus) -> list[tuple[str, ...]]:
    """Groups of similar cells that this one belongs to, most specific first."""
    model, _, method = cell.labels
    return [cell.labels, (model, method), (method,), ()]
