"""What a layout is: a function from the cells, records and slots of a frame to the columns of a table.

Plugins register such functions as entry points of the group `tta_bench.layouts`. A column has a `measure`,
which aggregates records by row and seed; footnotes, ranks, ties and intervals are the same for all layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from pandas import DataFrame, Series

from tta_bench.tables.references import as_names
from tta_bench.tables.references.reference import Citation
from tta_bench.tables.table import Column, TableError

ROW = ["row", "seed"]  # by which measures aggregate
# From records (with a result) and cells to a number for each row and seed; it is missing or NaN without one.
Measure = Callable[[DataFrame, DataFrame], Series]
Slots = Callable[[DataFrame], Series]  # from the slots of a table to the ones that a column needs


class RowId(NamedTuple):
    """The key of a row in its group; records of different rows are never averaged."""

    method: str
    variant: str
    reset: str
    version: str
    settings: str = ""  # that distinguish it from rows of the same method, if mixing is allowed

    @property
    def label(self) -> str:
        """Its name for readers."""
        variant = f" [{self.variant}]" if self.variant else ""
        version = f" (v{self.version})" if self.version else ""
        return f"{self.method}{variant}{version}" + (f" ({self.settings})" if self.settings else "")


@dataclass(frozen=True)
class Options:
    """The options of a table."""

    round: int | None = None  # None: the last
    allow_mixed: bool = False
    caption: str | None = None  # None: the caption of the layout
    label: str | None = None  # None: tab:<layout>
    parameter: str | None = None  # of a sweep; None: the only one with several values
    reference: str | Sequence[str] | None = None  # one or several whose published numbers to add as rows
    columns: Sequence[str] | None = None  # further columns, by name; None: those of the layout

    @property
    def references(self) -> tuple[str, ...]:
        """The references whose published numbers to add."""
        return as_names(self.reference)


def no_slot(slots: DataFrame) -> Series:
    """The slots of a column that needs none."""
    return Series(False, slots.index)


@dataclass(frozen=True)
class ColumnSpec:
    """A column and how to compute it: `measure` takes the records in the slots that it `needs`.

    A `fact` is known without results, so it is shown as soon as one seed has it. An `optional` fact does
    not apply to all rows: the dash of a row without it has no footnote. A row without a cell in one of the
    `facets` gets a dash. A column that `ranks` another one, or that `compares` the rows with one of
    them, has no measure: it is computed from all rows of a group. A `mark` explains a number in a footnote.
    If facets are `repetitions`, intervals and ranks of a column of accuracies are about other facets.
    """

    column: Column
    measure: Measure | None = None
    needs: Slots = no_slot
    fact: bool = False
    optional: bool = False
    facets: tuple[str, ...] = ()
    repetitions: bool = False
    citation: Citation | None = None
    ranks: str = ""  # key of a column
    compares: RowId | None = None
    mark: Callable[[DataFrame], dict[int, str]] | None = None  # from the records to a text for each row


@dataclass(frozen=True)
class LayoutInput:
    """A frame as a star: its cells, and its records (rows with a round and a domain) with cell and slot.

    A slot is a domain in a round and, in a layout that puts several cells of a seed in one row (datasets,
    values of a parameter, protocols), the facet of the cell; otherwise the facet is empty.
    """

    layout: str
    cells: DataFrame
    records: DataFrame
    slots: DataFrame  # round, corruption, severity, facet: of all cells, run or not, in the order of the YAML
    options: Options
    listed: bool = False  # whether the records list everything that the benchmark has, run or not

    def error(self, problem: str, remedy: str) -> TableError:
        """The error that the layout cannot show these records."""
        return TableError(f"table {self.layout}", problem, remedy)

    @cached_property
    def round(self) -> int:
        """The requested round; by default the last one, run or planned."""
        rounds, asked = self.rounds, self.options.round
        if asked is None:
            return rounds[-1] if rounds else int(self.cells["rounds"].max())
        if asked not in rounds:
            have = ", ".join(map(str, rounds)) or "none yet"
            raise self.error(f"no records of round {asked}", f"Rounds: {have}")
        return asked

    @cached_property
    def rounds(self) -> list[int]:
        """All rounds, run or planned."""
        return sorted(self.slots["round"].unique().tolist())

    def within(self, chosen: Series) -> LayoutInput:
        """The input with some of the slots only."""
        facets = self.slots["facet"][chosen]
        cells = (
            self.cells
            if self.cells["facet"].isin([""]).all()
            else self.cells[self.cells["facet"].isin(facets)]
        )
        return replace(self, slots=self.slots[chosen], cells=cells)

    def within_round(self) -> LayoutInput:
        """The input without the other rounds."""
        return self.within(self.slots["round"] == self.round)

    def faceted(self, facet: Series, **changes: Any) -> LayoutInput:
        """The input with a facet for each cell, and other changes of cells."""
        from tta_bench.tables.assembly.star import with_slots

        cells = self.cells.assign(facet=facet, **changes)
        records, slots = with_slots(cells, self.records)
        return replace(self, cells=cells, records=records, slots=slots)

    @cached_property
    def only_clean(self) -> bool:
        """Whether the stream has nothing but clean images."""
        return bool((self.slots["corruption"] == "clean").all())

    def averaged(self, slots: DataFrame) -> Series:
        """The slots that an average includes: clean images only if there is nothing else."""
        return (slots["corruption"] != "clean") | self.only_clean

    @property
    def clean_note(self) -> tuple[str, ...]:
        """A note if the stream has clean images that the average leaves out."""
        mixed = not self.only_clean and (self.slots["corruption"] == "clean").any()
        return ("Averages leave out the clean images.",) if mixed else ()

    @property
    def severity(self) -> str:
        """`, severity 5`, or an empty text if the stream has no corruptions."""
        found = sorted(set(self.slots["severity"]) - {0})
        name = "severity" if len(found) == 1 else "severities"
        return f", {name} {', '.join(map(str, found))}" if found else ""

    def average(self, round: int | Literal["all"] | Sequence[int], facet: str | None = None) -> Slots:
        """The slots of one, several or all rounds that an average includes."""

        def needs(slots: DataFrame) -> Series:
            chosen = self.averaged(slots)
            if round != "all":
                chosen &= slots["round"].isin([round] if isinstance(round, int) else round)
            return chosen if facet is None else chosen & (slots["facet"] == facet)

        return needs

    def mean_accuracy(
        self, key: str, name: str, round: int | Literal["all"], facet: str | None = None, group: str = ""
    ) -> ColumnSpec:
        """A column of mean accuracies; published numbers for it are the averages of a round."""
        column, citation = Column(key, name, "accuracy", group), Citation("accuracy", "average", round)
        facets = () if facet is None else (facet,)
        return ColumnSpec(column, accuracy, self.average(round, facet), facets=facets, citation=citation)

    def backprop(self) -> tuple[ColumnSpec, ...]:
        """The column BP, if any method of the table uses backpropagation."""
        wanted = self.cells["backprop"].eq(True).any()
        return (tick("backprop", "BP"),) if wanted else ()


@dataclass(frozen=True)
class TableSpec:
    """The caption, columns and notes of a table, before any number is computed."""

    caption: str
    columns: tuple[ColumnSpec, ...]
    notes: tuple[str, ...] = ()
    given: LayoutInput | None = None  # with facets, where a row has cells of several facets
    further: Sequence[str] = ()  # columns of `further.FURTHER` to add unless the user chooses others
    shown: Slots | None = None  # what these are about; None: the layout takes no further columns


Layout = Callable[[LayoutInput], TableSpec]


# -- measures ----------------------------------------------------------------------------------------


def mean(name: str) -> Measure:
    """The mean over domains, all with the same weight, as in the literature."""
    return lambda records, _: records.groupby(ROW)[name].mean()


accuracy = mean("accuracy")


def per_image(name: str) -> Measure:
    """A count per image, averaged over all images."""

    def measure(records: DataFrame, _: DataFrame) -> Series:
        totals = (records[name] * records["n"]).groupby([records[each] for each in ROW]).sum(min_count=1)
        return totals / records.groupby(ROW)["n"].sum()

    return measure


def known(name: str) -> Measure:
    """A fact about the cell."""
    return lambda _, cells: cells.groupby(ROW)[name].first()


def passes(key: str, name: str, needs: Slots) -> ColumnSpec:
    """A column of passes per image: `forwards` or `backwards`."""
    return ColumnSpec(Column(key, name, "count"), per_image(key), needs, citation=Citation(key))


def memory(key: str, name: str) -> ColumnSpec:
    """A column of memory, which is known before a cell runs."""
    return ColumnSpec(Column(key, name, "memory"), known(key), fact=True, citation=Citation(key))


def rank_of(key: str) -> ColumnSpec:
    """A column with the ranks of another column."""
    return ColumnSpec(Column("rank", "Rank", "rank"), ranks=key)


def tick(key: str, name: str, holds: Callable[[Mapping[str, Any]], bool] | None = None) -> ColumnSpec:
    """A column of ticks: whether a property of the method's parameters holds; else a fact about cells."""
    if holds is None:
        return ColumnSpec(Column(key, name, "flag"), known(key), fact=True)

    def measure(records: DataFrame, cells: DataFrame) -> Series:
        holding = [holds(settings) for settings in cells["settings"]]
        return cells.assign(holds=holding).groupby(ROW)["holds"].first()

    return ColumnSpec(Column(key, name, "flag"), measure, fact=True)


def difference(
    key: str, name: str, part: str, values: tuple[Any, Any], needs: Slots, facets: tuple[str, ...] = ()
) -> ColumnSpec:
    """A column of points of accuracy: where `part` has the first value, minus where it has the second."""

    def measure(records: DataFrame, _: DataFrame) -> Series:
        means = records.groupby([*ROW, part])["accuracy"].mean().unstack(part)
        first, second = (means.get(value, np.nan) for value in values)
        return first - second + Series(0.0, means.index)

    return ColumnSpec(Column(key, name, "count"), measure, needs, facets=facets)
