"""Warnings for readers: methods that forget, collapse, or have no number, with the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tta_bench.report.tables import RowKey, key_of
from tta_bench.tables.table import Row, RowGroup, Table

FORGETTING_POINTS = 1.0
COLLAPSED_SHARE = 0.5


class Flag(NamedTuple):
    """A warning: its kind and its text."""

    kind: str
    text: str


class DomainInRound(NamedTuple):
    """A domain of one round."""

    round: int
    corruption: str


Curve = Mapping[DomainInRound, float]


def forgetting(long_term: Table, row: Row) -> list[Flag]:
    """A flag if the last round is worse than the first by more than `FORGETTING_POINTS`."""
    rounds = [
        (column.name, float(entry.value))
        for column, entry in zip(long_term.columns, row.entries, strict=True)
        if column.key.startswith("round_") and entry.value is not None
    ]
    if len(rounds) < 2:
        return []
    (first, before), (last, after) = rounds[0], rounds[-1]
    lost = round(before - after, 1)  # as printed, so that text and flag agree
    if lost <= FORGETTING_POINTS:
        return []
    return [Flag("forgets", f"{lost} points lower in round {last} than in round {first}")]


def collapse(own: Curve, source: Curve | None) -> list[Flag]:
    """A flag if accuracy fell below `COLLAPSED_SHARE` of what the model has without adaptation.

    If the benchmark has no row without adaptation, a method is compared with its own first round.
    """
    limits = (
        {domain: own.get(DomainInRound(1, domain.corruption), 0) for domain in own}
        if source is None
        else source
    )
    fallen = [domain for domain in own if own[domain] < COLLAPSED_SHARE * limits.get(domain, 0)]
    if not fallen:
        return []
    first, than = min(fallen), "its own in round 1" if source is None else "that of the unadapted model"
    count = f"{len(fallen)} of {len(own)} domains"
    where = f"first in round {first.round}, {first.corruption}"
    return [Flag("collapses", f"accuracy below {COLLAPSED_SHARE:.0%} of {than} in {count}, {where}")]


def curves(per_corruption: Mapping[int, Table]) -> dict[RowKey, dict[DomainInRound, float]]:
    """For each row its accuracy in every domain of every round that has one."""
    found: dict[RowKey, dict[DomainInRound, float]] = {}
    for round_, table in per_corruption.items():
        for group, row in own_rows(table):
            curve = found.setdefault(key_of(group, row), {})
            for column, entry in zip(table.columns, row.entries, strict=True):
                if column.kind == "accuracy" and column.key != "average" and entry.value is not None:
                    curve[DomainInRound(round_, column.key)] = float(entry.value)
    return found


def own_rows(table: Table) -> list[tuple[RowGroup, Row]]:
    """The rows of a table without the published ones."""
    return [pair for pair in table.rows if not pair[1].published]


def nonfinite(images: int) -> list[Flag]:
    """A flag if a method predicted NaN or infinite values."""
    text = f"{images:,} predictions were not finite; they count as wrong"
    return [Flag("not finite", text)] if images else []


def incomplete(statuses: Sequence[str], reasons: Sequence[str]) -> list[Flag]:
    """A flag if a row is not complete: the worst status of its cells, and the reasons from the table."""
    for status in ("failed", "unsupported", "pending"):
        if status in statuses:
            return [Flag(status, "; ".join(reasons) or "not all records are there yet")]
    return []
