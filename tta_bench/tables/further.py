"""Columns that can be added to a table by name: `tta-bench table --columns ms_per_image,ece`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from pandas import DataFrame, Series

from tta_bench.errors import suggest
from tta_bench.tables.layout import (
    ROW,
    ColumnSpec,
    LayoutInput,
    Measure,
    Slots,
    TableSpec,
    difference,
    mean,
)
from tta_bench.tables.table import Column, Kind


def with_further(given: LayoutInput, spec: TableSpec) -> Iterator[ColumnSpec]:
    """The columns of a layout, and those that were asked for or that the layout adds by default."""
    yield from spec.columns
    asked = given.options.columns
    if asked and spec.shown is None:
        raise given.error("it takes no further columns", "Leave out the option columns")
    for name in spec.further if asked is None else asked:
        if name not in FURTHER:
            known = suggest(name, list(FURTHER), "There are")
            raise given.error(f'unknown column "{name}"', known)
        if spec.shown is not None:
            yield FURTHER[name](given, spec.shown)


def _column(key: str, name: str, kind: Kind, measure: Measure) -> Callable[[LayoutInput, Slots], ColumnSpec]:
    return lambda _, shown: ColumnSpec(Column(key, name, kind), measure, shown)


def _timed(key: str, name: str, measure: Measure) -> Callable[[LayoutInput, Slots], ColumnSpec]:
    """A column of times, each marked with where it was taken."""
    return lambda _, shown: ColumnSpec(Column(key, name, "time"), measure, shown, mark=_places)


def _places(records: DataFrame) -> dict[int, str]:
    """Host, device and threads behind the times of each row."""
    known: Any = records[["row", "host", "device", "threads"]].drop_duplicates().astype(object).fillna("")
    found: dict[int, list[str]] = {}
    for row, host, device, threads in known.itertuples(index=False):
        place = f"{host or 'an unknown host'} ({device or 'unknown device'}, {_threads(threads)})"
        found.setdefault(row, []).append(place)
    return {row: f"timed on {' and '.join(places)}" for row, places in found.items()}


def _threads(count: int) -> str:
    return f"{int(count)} thread{'s' * (count != 1)}" if count else "unknown threads"


def milliseconds(records: DataFrame, cells: DataFrame) -> Series:
    """Milliseconds of adaptation and prediction per image."""
    return 1000 * per_total("seconds", "n")(records, cells)


def per_total(name: str, of: str) -> Measure:
    """The sum of a column over the sum of another."""

    def measure(records: DataFrame, _: DataFrame) -> Series:
        totals = records.groupby(ROW)[[name, of]].sum(min_count=1)
        return totals[name] / totals[of].where(totals[of] > 0)

    return measure


def worst(records: DataFrame, _: DataFrame) -> Series:
    """The accuracy of the domain with the lowest accuracy."""
    return (
        records.groupby([*ROW, "corruption", "severity"], observed=True)["accuracy"].mean().groupby(ROW).min()
    )


def forgetting(given: LayoutInput, _: Slots) -> ColumnSpec:
    """The accuracy at the first visits of the domains minus that at their last, in points."""
    first, last = given.rounds[0], given.rounds[-1]
    if first == last:
        raise given.error(
            "forgetting compares two rounds, and there is one", "Run with stream.rounds above 1"
        )
    return difference("forgetting", "Forgetting", "round", (first, last), given.average([first, last]))


FURTHER: Mapping[str, Callable[[LayoutInput, Slots], ColumnSpec]] = MappingProxyType(
    {
        "ms_per_image": _timed("ms_per_image", "ms/image", milliseconds),
        "throughput": _timed("throughput", "Images/s", per_total("n", "seconds")),
        "ece": _column("ece", "ECE (%)", "score", mean("ece")),
        "top5": _column("top5", "Top-5 (%)", "score", mean("top5")),
        "class_accuracy": _column("class_accuracy", "Per class (%)", "score", mean("class_accuracy")),
        "worst_domain": _column("worst_domain", "Worst (%)", "score", worst),
        "forgetting": forgetting,
    }
)
NAMES: Sequence[str] = tuple(FURTHER)
