"""Where a cell goes on, from what the results folder holds of it."""

from __future__ import annotations

from collections.abc import Sequence

from tta_bench.exchange import Checkpoint, Start
from tta_bench.grid import Cell
from tta_bench.plan import forgets, make_method, repeats
from tta_bench.store import Record


def start_of(
    cell: Cell, records: Sequence[Record], checkpoint: Checkpoint | None
) -> tuple[Start, list[Record]]:
    """The start of a cell, and those of its records that stay; all others are computed again.

    What forgets at every domain goes on at any domain that has no record. What remembers goes on at its
    checkpoint, and only if every domain before it is recorded: a state is of no use without its past.
    """
    method = make_method(cell)
    count, repeating = len(cell.domains), repeats(cell, method)
    index = {tuple(domain): i for i, domain in enumerate(cell.domains)}
    by_place = {_place(record, index): record for record in records if record.get("status") == "ok"}
    finished = set(by_place)
    if repeating:  # a place of the first round stands for all rounds, and is there only if they all are
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
    kept = [r for place, r in sorted(by_place.items()) if (place % count if repeating else place) in finished]
    facts = [record for record in records if record["kind"] == "cell"][-1:] if kept or checkpoint else []
    return Start(frozenset(finished), checkpoint, bool(facts)), facts + kept


def _place(record: Record, index: dict[tuple[object, ...], int]) -> int:
    """The number of a record's domain, counted over all rounds."""
    return (record["round"] - 1) * len(index) + index[record["corruption"], record["severity"]]
