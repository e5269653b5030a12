"""Where a cell goes on, from what the results folder holds of it."""

from __future__ import annotations

from collections.abc import Sequence

from tta_bench.exchange import Checkpoint, Start
from tta_bench.grid import Cell
from tta_bench.plan import forgets, make_method, repeats
from tta_bench.store import Record


def start_of(
    cell: Cell, records: Sequence[Record], checkpoint: Checkpoint | None, share: bool = True
) -> tuple[Start, list[Record]]:
    """The start of a cell, and those of its records that stay; all others are computed again.

    A cell that forgets at every domain goes on at any domain that has no record. One that remembers goes on
    at its checkpoint, and only if every domain before it is recorded: a state is of no use without its past.
    Without sharing, rounds that were copied from the first are computed like all others.
    """
    method = make_method(cell)
    count, once = len(cell.domains), share and repeats(cell, method)
    index = {tuple(domain): i for i, domain in enumerate(cell.domains)}
    sound = [r for r in records if r["status"] == "ok" and r["code"] == cell.code]
    by_place = {_place(r, index): r for r in sound if share or "repeats" not in r}
    finished = set(by_place)
    if once:  # a place of the first round stands for all rounds, and is finished only if they all are
        finished = {i for i in range(count) if all(i + r * count in by_place for r in range(cell.rounds))}
    if len(by_place) == cell.records_expected:
        checkpoint = None
    elif forgets(cell, method):
        if checkpoint is not None and checkpoint.place in finished:
            checkpoint = None
    elif checkpoint is not None and finished.issuperset(range(checkpoint.place)):
        finished = set(range(checkpoint.place))
    else:
        finished, checkpoint = set(), None
    kept = [r for place, r in sorted(by_place.items()) if (place % count if once else place) in finished]
    return Start(frozenset(finished), checkpoint), kept


def _place(record: Record, index: dict[tuple[object, ...], int]) -> int:
    """The number of a record's domain, counted over all rounds."""
    return (record["round"] - 1) * len(index) + index[record["corruption"], record["severity"]]
