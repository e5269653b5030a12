"""What a layout says: which columns there are, and how each gets its number from records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, NamedTuple

from tta_bench.layouts.records import Record, RowId, Slot, slots
from tta_bench.layouts.types import Column, TableError

Measure = Callable[[Sequence[Record]], "float | None"]


@dataclass(frozen=True)
class Options:
    """What a caller may ask of a layout."""

    round: int | None = None  # None is the last
    allow_mixed: bool = False
    caption: str | None = None  # None is the layout's own
    label: str | None = None  # None is tab:<layout>
    parameter: str | None = None  # of a sweep; None is the one that takes several values
    reference: str | None = None  # published numbers to add as rows of their own


class Cite(NamedTuple):
    """The published number to set beside a column's: an accuracy has a column and a round of its own."""

    metric: str
    column: str = ""
    round: int | Literal["all"] | None = None


@dataclass(frozen=True)
class Spec:
    """A column and its number: `measure` over one seed's records in the slots it `needs`.

    A `fact` is known of a cell without its results, so it is shown as soon as one record tells it.
    A line that has no cell of one of the `facets` gets a dash. A column that `ranks` another, or `compares`
    the accuracy of its slots with that of another row, has no measure: it is filled in from all rows.
    """

    column: Column
    measure: Measure
    needs: Callable[[Slot], bool] = lambda slot: False
    fact: bool = False
    facets: tuple[str, ...] = ()
    cites: Cite | None = None
    ranks: str = ""  # key of the column
    compares: RowId | None = None


@dataclass(frozen=True)
class Plan:
    """A layout applied to records, before any number is computed."""

    caption: str
    specs: tuple[Spec, ...]
    notes: tuple[str, ...] = ()
    records: Sequence[Record] | None = None  # rearranged, where a row holds cells of several facets


Layout = Callable[[str, Sequence[Record], Options], Plan]


def accuracy(records: Sequence[Record]) -> float | None:
    """The mean accuracy, each domain counting the same, as the literature does."""
    values = [r.accuracy for r in records if r.accuracy is not None]
    return fmean(values) if len(values) == len(records) else None


def per_image(name: str) -> Measure:
    """A measure: a count per image, each image counting the same."""

    def measure(records: Sequence[Record]) -> float | None:
        images = sum(r.n or 0 for r in records)
        values = [getattr(r, name) for r in records]
        if not images or any(value is None for value in values):
            return None
        return float(sum(v * (r.n or 0) for v, r in zip(values, records, strict=True)) / images)

    return measure


def unmeasured(records: Sequence[Record]) -> None:
    """A measure of nothing: for columns that are filled in from other rows."""


def rank_of(key: str) -> Spec:
    """The column of the ranks in another."""
    return Spec(Column("rank", "Rank", "rank"), unmeasured, ranks=key)


def fact(name: str) -> Measure:
    """A measure: what the first record that has it says."""

    def measure(records: Sequence[Record]) -> float | None:
        return next((v for r in records if (v := getattr(r, name)) is not None), None)

    return measure


def tick(key: str, name: str, holds: Callable[[Record], bool | None]) -> Spec:
    """A column of ticks: what is true of a row's method."""

    def measure(records: Sequence[Record]) -> float | None:
        return next((value for record in records if (value := holds(record)) is not None), None)

    return Spec(Column(key, name, "flag"), measure, fact=True)


def backprop(records: Sequence[Record]) -> tuple[Spec, ...]:
    """The column BP, where any method of the table propagates backwards."""
    wanted = any(record.backprop for record in records)
    return (tick("backprop", "BP", lambda record: record.backprop),) if wanted else ()


def averaged(found: Sequence[Slot]) -> Callable[[Slot], bool]:
    """Which slots count for an average: clean images do only where there is nothing else."""
    only_clean = all(slot.corruption == "clean" for slot in found)
    return lambda slot: only_clean or slot.corruption != "clean"


def averaged_at(found: Sequence[Slot], round: int) -> Callable[[Slot], bool]:
    """Which slots count for the average of one round."""
    counts = averaged(found)
    return lambda slot: slot.round == round and counts(slot)


def clean_note(found: Sequence[Slot]) -> tuple[str, ...]:
    """A note if clean images are in the stream but not in the average."""
    names = {slot.corruption for slot in found}
    return ("Averages leave out the clean images.",) if "clean" in names and len(names) > 1 else ()


def chosen_round(layout: str, records: Sequence[Record], asked: int | None) -> int:
    """The round asked for, or else the last that there is or will be one day."""
    rounds = sorted({slot.round for slot in slots(records)})
    if asked is None:
        return rounds[-1] if rounds else max(record.rounds for record in records)
    if asked not in rounds:
        have = ", ".join(map(str, rounds)) or "none yet"
        raise TableError(f"table {layout}", f"no records of round {asked}", f"Rounds: {have}")
    return asked


def stream_text(records: Sequence[Record]) -> str:
    """Which images the numbers are about: data, images per domain, batch size, and the data's note."""
    names = list(dict.fromkeys(record.data for record in records))
    images = _between(record.n for record in records if record.n is not None)
    batches = ", ".join(map(str, sorted({record.batch_size for record in records})))
    parts = [", ".join(names), f"{images} images per domain" if images else "", f"batches of {batches}"]
    notes = list(dict.fromkeys(record.data_note for record in records if record.data_note))
    return ". ".join([", ".join(filter(None, parts)), *(note.rstrip(".") for note in notes)]) + "."


def _between(values: Iterable[int]) -> str:
    """One number, or the least and the most."""
    found = sorted({int(value) for value in values})
    if not found:
        return ""
    return f"{found[0]:,}" if len(found) == 1 else f"{found[0]:,}–{found[-1]:,}"


def severity_text(records: Sequence[Record]) -> str:
    """ ", severity 5", or nothing if there is no such thing."""
    found = sorted({slot.severity for slot in slots(records) if slot.severity > 0})
    name = "severity" if len(found) == 1 else "severities"
    return f", {name} {', '.join(map(str, found))}" if found else ""
