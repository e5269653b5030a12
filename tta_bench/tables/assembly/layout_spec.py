"""What a layout returns: the columns of a table, and how each computes its numbers from records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from statistics import fmean
from typing import Literal

from tta_bench.tables.assembly.records import RowId, Slot, TidyRecord, slots
from tta_bench.tables.reference import Citation
from tta_bench.tables.table import Column, TableError

Measure = Callable[[Sequence[TidyRecord]], "float | None"]


@dataclass(frozen=True)
class Options:
    """The options of a table."""

    round: int | None = None  # None: the last
    allow_mixed: bool = False
    caption: str | None = None  # None: the caption of the layout
    label: str | None = None  # None: tab:<layout>
    parameter: str | None = None  # of a sweep; None: the only one with several values
    reference: str | None = None  # whose published numbers to add as rows


@dataclass(frozen=True)
class ColumnSpec:
    """A column and how to compute it: `measure` takes the records of one seed in the slots it `needs`.

    A `fact` is known without results, so it is shown as soon as one record of the cell has it. A row without
    a cell in one of the `facets` gets a dash. A column that `ranks` another one, or that `compares` the rows
    with one of them, has no measure: it is computed from all rows of a group.
    """

    column: Column
    measure: Measure
    needs: Callable[[Slot], bool] = lambda slot: False
    fact: bool = False
    facets: tuple[str, ...] = ()
    citation: Citation | None = None
    ranks: str = ""  # key of a column
    compares: RowId | None = None


@dataclass(frozen=True)
class TableSpec:
    """The caption, columns and notes of a table, before any number is computed."""

    caption: str
    columns: tuple[ColumnSpec, ...]
    notes: tuple[str, ...] = ()
    records: Sequence[TidyRecord] | None = None  # with facets, where a row has cells of several facets


@dataclass(frozen=True)
class LayoutInput:
    """The records of a table and its options, with the columns and texts that most layouts have."""

    layout: str
    records: Sequence[TidyRecord]
    options: Options

    def error(self, problem: str, remedy: str) -> TableError:
        """The error that the layout cannot show these records."""
        return TableError(f"table {self.layout}", problem, remedy)

    @cached_property
    def slots(self) -> list[Slot]:
        """The slots of all cells, run or pending, in the order of the YAML."""
        return slots(self.records)

    @cached_property
    def round(self) -> int:
        """The requested round; by default the last one, run or planned."""
        rounds, asked = sorted({slot.round for slot in self.slots}), self.options.round
        if asked is None:
            return rounds[-1] if rounds else max(record.rounds for record in self.records)
        if asked not in rounds:
            have = ", ".join(map(str, rounds)) or "none yet"
            raise self.error(f"no records of round {asked}", f"Rounds: {have}")
        return asked

    def within_round(self) -> LayoutInput:
        """The input without the other rounds."""
        here = [r for r in self.records if r.slot is not None and r.slot.round == self.round]
        return replace(self, records=here)

    @cached_property
    def only_clean(self) -> bool:
        """Whether the stream has nothing but clean images."""
        return all(slot.corruption == "clean" for slot in self.slots)

    def averaged(self, slot: Slot) -> bool:
        """Whether an average includes a slot: clean images only if there is nothing else."""
        return self.only_clean or slot.corruption != "clean"

    @property
    def clean_note(self) -> tuple[str, ...]:
        """A note if the stream has clean images that the average leaves out."""
        mixed = not self.only_clean and any(slot.corruption == "clean" for slot in self.slots)
        return ("Averages leave out the clean images.",) if mixed else ()

    @property
    def severity(self) -> str:
        """`, severity 5`, or an empty text if the stream has no corruptions."""
        found = sorted({slot.severity for slot in self.slots if slot.severity > 0})
        name = "severity" if len(found) == 1 else "severities"
        return f", {name} {', '.join(map(str, found))}" if found else ""

    def mean_accuracy(
        self, key: str, name: str, round: int | Literal["all"], facet: str | None = None, group: str = ""
    ) -> ColumnSpec:
        """A column of mean accuracies; published numbers for it are the averages of a round."""

        def needs(slot: Slot) -> bool:
            return round in ("all", slot.round) and facet in (None, slot.facet) and self.averaged(slot)

        column, citation = Column(key, name, "accuracy", group), Citation("accuracy", "average", round)
        facets = () if facet is None else (facet,)
        return ColumnSpec(column, accuracy, needs, facets=facets, citation=citation)

    def backprop(self) -> tuple[ColumnSpec, ...]:
        """The column BP, if any method of the table uses backpropagation."""
        wanted = any(record.backprop for record in self.records)
        return (tick("backprop", "BP", attrgetter("backprop")),) if wanted else ()


Layout = Callable[[LayoutInput], TableSpec]


def accuracy(records: Sequence[TidyRecord]) -> float | None:
    """The mean accuracy over domains, all with the same weight, as in the literature."""
    values = [r.accuracy for r in records if r.accuracy is not None]
    return fmean(values) if len(values) == len(records) else None


def per_image(name: str) -> Measure:
    """A measure: a count per image, averaged over all images."""

    def measure(records: Sequence[TidyRecord]) -> float | None:
        images = sum(r.n or 0 for r in records)
        values = [getattr(r, name) for r in records]
        if not images or any(value is None for value in values):
            return None
        return float(sum(v * (r.n or 0) for v, r in zip(values, records, strict=True)) / images)

    return measure


def passes(key: str, name: str, needs: Callable[[Slot], bool]) -> ColumnSpec:
    """A column of passes per image: `forwards` or `backwards`."""
    return ColumnSpec(Column(key, name, "count"), per_image(key), needs, citation=Citation(key))


def memory(key: str, name: str) -> ColumnSpec:
    """A column of memory, which is known before a cell runs."""
    return ColumnSpec(Column(key, name, "memory"), fact(attrgetter(key)), fact=True, citation=Citation(key))


def unmeasured(records: Sequence[TidyRecord]) -> None:
    """The measure of columns that are computed from all rows."""


def rank_of(key: str) -> ColumnSpec:
    """A column with the ranks of another column."""
    return ColumnSpec(Column("rank", "Rank", "rank"), unmeasured, ranks=key)


def fact(of: Callable[[TidyRecord], float | None]) -> Measure:
    """A measure: a fact about the cell, from the first record that has it."""
    return lambda records: next((value for r in records if (value := of(r)) is not None), None)


memory_mib = fact(attrgetter("memory_mib"))


def tick(key: str, name: str, holds: Callable[[TidyRecord], bool | None]) -> ColumnSpec:
    """A column of ticks: whether a property holds for the method of a row."""
    return ColumnSpec(Column(key, name, "flag"), fact(holds), fact=True)


def difference(
    key: str,
    name: str,
    of: Callable[[TidyRecord], object],
    parts: tuple[object, object],
    needs: Callable[[Slot], bool],
    facets: tuple[str, ...] = (),
) -> ColumnSpec:
    """A column of points of accuracy: records where `of` has the first value minus those with the second."""

    def measure(records: Sequence[TidyRecord]) -> float | None:
        first, second = (accuracy([r for r in records if of(r) == part]) for part in parts)
        return None if first is None or second is None else first - second

    return ColumnSpec(Column(key, name, "count"), measure, needs, facets=facets)


def stream_text(records: Sequence[TidyRecord]) -> str:
    """The data behind the numbers: its name, images per domain, batch size, and its note."""
    names = list(dict.fromkeys(record.data for record in records))
    images = _between(record.n for record in records if record.n is not None)
    batches = ", ".join(map(str, sorted({record.batch_size for record in records})))
    parts = [", ".join(names), f"{images} images per domain" if images else "", f"batches of {batches}"]
    notes = list(dict.fromkeys(record.data_note for record in records if record.data_note))
    return ". ".join([", ".join(filter(None, parts)), *(note.rstrip(".") for note in notes)]) + "."


def _between(values: Iterable[int]) -> str:
    """One number, or the smallest and the largest."""
    found = sorted({int(value) for value in values})
    if not found:
        return ""
    return f"{found[0]:,}" if len(found) == 1 else f"{found[0]:,}–{found[-1]:,}"
