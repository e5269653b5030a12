"""The best rows by the rule of the report's budget section; the best forward-only method of each network."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Protocol, TypeVar

from tta_bench.tables.build import build, tied
from tta_bench.tables.table import Row, RowGroup, Table, TableEntry, printed

if TYPE_CHECKING:
    from pandas import DataFrame

SOURCE = "source"  # the method without adaptation: the baseline of gains
Ties = Sequence[list[int] | None]  # for each row of a table, the rows tied with it


class RankedRow(Protocol):
    """A row of the cost table; `place` is its number among all rows that are not published."""

    @property
    def place(self) -> int: ...

    @property
    def accuracy(self) -> float: ...

    @property
    def memory_mib(self) -> float: ...


AnyRow = TypeVar("AnyRow", bound=RankedRow)


def leading(rows: Iterable[AnyRow], ties: Ties) -> tuple[list[AnyRow], bool]:
    """The most accurate row with those right after it that are tied with it, and whether ties are known.

    Of equally accurate rows, the one with the least memory comes first.
    """
    first, *others = sorted(rows, key=lambda row: (-row.accuracy, row.memory_mib))
    equals, text = ties[first.place], printed(first.accuracy, "accuracy")
    shared = takewhile(
        lambda row: row.place in (equals or ()) or printed(row.accuracy, "accuracy") == text, others
    )
    return [first, *shared], equals is not None or not others


@dataclass(frozen=True)
class BestMethods:
    """The most accurate method without backpropagation on one network, and those tied with it."""

    group: str  # e.g. vit-micro W8A8
    bits: str
    methods: tuple[str, ...] = ()  # empty if none is more accurate than Source
    accuracy: float | None = None  # of the first, in %
    gain: float | None = None  # of the first over Source, in points
    memory_mib: float | None = None  # of the first
    known: bool = True  # whether there is enough data to say which methods are tied
    place: int | None = None  # the number of the first's row in the cost table

    @property
    def sentence(self) -> str:
        """The finding in one sentence."""
        where = f"On {self.group}"
        if not self.methods:
            return f"{where} no forward-only method is more accurate than Source."
        first, *others = self.methods
        if not self.known:
            unsure = f"({self._facts}); there is too little data to tell it from others"
            return f"{where} the most accurate forward-only method is {first} {unsure}."
        if not others:
            return f"{where} the best forward-only method is {first} ({self._facts})."
        listed = f"{', '.join(self.methods[:-1])} and {others[-1]}"
        return f"{where} the best forward-only methods are {listed}, which are tied ({first}: {self._facts})."

    @property
    def _facts(self) -> str:
        """Accuracy, gain and memory of the first method."""
        facts = [f"{printed(self.accuracy or 0.0, 'accuracy')} %"]
        if self.gain is not None:
            facts.append(f"{self.gain:+.1f} over Source".replace("-", "−"))
        if self.memory_mib is not None:
            facts.append(f"at {printed(self.memory_mib, 'memory')} MiB")
        return ", ".join(facts)


def best_methods(frame: DataFrame, round: int | None = None) -> list[BestMethods]:
    """The best forward-only methods of every network that has any, at a round (default: the last)."""
    table = build(frame, "cost", round=round)
    baseline = set(frame["method"][frame["method_plugin"] == SOURCE])
    return of_table(table, tied(frame, "cost", "accuracy", round=round), baseline)


def of_table(table: Table, ties: Ties, baseline: Collection[str]) -> list[BestMethods]:
    """The same from the cost table and the ties of its rows; `baseline` has the names of Source."""
    keys, own, found = [column.key for column in table.columns], 0, []
    for group in table.groups:
        candidates = []
        for row in (row for row in group.rows if not row.published):
            candidates.append(_Candidate(own, row, dict(zip(keys, row.entries, strict=True))))
            own += 1
        complete = [each for each in candidates if each.number("accuracy") is not None]
        if complete:
            found.append(_of_group(group, complete, ties, baseline))
    return found


@dataclass(frozen=True)
class _Candidate:
    """A row of the cost table with its number among all rows that are not published."""

    place: int
    row: Row
    entries: dict[str, TableEntry]

    def number(self, key: str) -> float | None:
        """One number of the row; None for a dash."""
        entry = self.entries.get(key)
        return None if entry is None or entry.value is None else float(entry.value)

    @property
    def accuracy(self) -> float:
        """Its accuracy, which all rows that are compared have."""
        return self.number("accuracy") or 0.0

    @property
    def memory_mib(self) -> float:
        """Its memory; 0 if that is not known."""
        return self.number("memory_mib") or 0.0


def _of_group(
    group: RowGroup, rows: Sequence[_Candidate], ties: Ties, baseline: Collection[str]
) -> BestMethods:
    """The leading rows without backpropagation, if they are more accurate than Source."""
    source = next((row.accuracy for row in rows if row.row.method in baseline), None)
    forward = [row for row in rows if row.row.method not in baseline and not row.number("backprop")]
    found, known = leading(forward, ties) if forward else ([], True)
    if not found or (source is not None and found[0].accuracy <= source):
        return BestMethods(group.label, group.bits)
    first = found[0]
    return BestMethods(
        group=group.label,
        bits=group.bits,
        methods=tuple(row.row.label for row in found),
        accuracy=first.accuracy,
        gain=None if source is None else first.accuracy - source,
        memory_mib=first.number("memory_mib"),
        known=known,
        place=first.place,
    )
