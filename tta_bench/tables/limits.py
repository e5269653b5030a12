"""Limits of memory and passes: which rows keep them, and which of these is the most accurate.

The budget section of the report page has the same rule in JavaScript; a browser test compares their answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tta_bench.tables.best import leading
from tta_bench.tables.build import build, tied
from tta_bench.tables.render.data import DECIMALS
from tta_bench.tables.table import TableError, printed

if TYPE_CHECKING:
    from pandas import DataFrame

ROW = ("model", "quantizer", "bits", "stream", "method", "variant", "reset")


@dataclass(frozen=True)
class Limits:
    """What a row may need at most; None: any."""

    memory_mib: float | None = None
    forwards: float | None = None  # passes per image
    forward_only: bool = False  # no method that uses backpropagation

    def allow(self, row: LimitedRow) -> bool:
        """Whether a row keeps all of them."""
        small = self.memory_mib is None or row.memory_mib <= self.memory_mib
        quick = self.forwards is None or row.forwards <= self.forwards
        return small and quick and not (self.forward_only and row.backprop)

    @property
    def words(self) -> str:
        """All limits in words; empty if there are none."""
        memory = [] if self.memory_mib is None else [f"{self.memory_mib:g} MiB"]
        passes = "pass" if self.forwards == 1 else "passes"
        forwards = [] if self.forwards is None else [f"{self.forwards:g} forward {passes}"]
        return ", ".join(memory + forwards + ["no backpropagation"] * self.forward_only)


class LimitedRow(NamedTuple):
    """A row of the cost table with all its numbers, and its number among the rows of ours."""

    place: int
    key: tuple[str, ...]
    name: str
    accuracy: float
    memory_mib: float
    forwards: float
    backprop: bool


def rows_of(frame: DataFrame, round: int | None = None) -> list[LimitedRow]:
    """Our rows of the cost table that have accuracy, memory and forward passes."""
    table = build(frame, "cost", round=round)
    keys = [column.key for column in table.columns]
    found = []
    for place, (group, row) in enumerate(pair for pair in table.rows if not pair[1].published):
        values = {key: entry.value for key, entry in zip(keys, row.entries, strict=True)}
        numbers = [values[key] for key in ("accuracy", "memory_mib", "forwards")]
        if any(number is None for number in numbers):
            continue
        key = (group.model, group.quantizer, group.bits, group.stream, row.method, row.variant, row.reset)
        accuracy, memory_mib, forwards = map(_rounded, numbers)
        name, backprop = f"{group.label} · {row.label}", bool(values["backprop"])
        found.append(LimitedRow(place, key, name, accuracy, memory_mib, forwards, backprop))
    return found


def answer(frame: DataFrame, limits: Limits, round: int | None = None) -> str:
    """The most accurate rows within limits, in one sentence."""
    within = f"Within {limits.words}: " if limits.words else "Without a limit: "
    rows = rows_of(frame, round)
    if not rows:
        return f"{within}no row has accuracy and memory yet."
    fitting = list(filter(limits.allow, rows))
    if not fitting:
        return f"{within}no row fits."
    found, known = leading(fitting, tied(frame, "cost", "accuracy", round=round))
    if not known:
        return f"{within}too little data to say which row is best; see the notes of the table."
    text = printed(found[0].accuracy, "accuracy")
    *names, last = [row.name for row in found]
    if not names:
        return f"{within}{last} with {text} %."
    return f"{within}{', '.join(names)} and {last} are tied, the first with {text} %."


def narrowed(frame: DataFrame, limits: Limits, round: int | None = None) -> tuple[DataFrame, str]:
    """The records of the rows within limits, and a note on what was left out."""
    kept = {row.key for row in rows_of(frame, round) if limits.allow(row)}
    keys = list(zip(*(frame[name].astype(str) for name in ROW), strict=True))
    left_out = len(dict.fromkeys(key for key in keys if key not in kept))
    if not kept:
        raise TableError("table", f"no row is within {limits.words}", "Loosen the limits.")
    note = f"Rows within {limits.words}; {left_out} more need more, or have no number yet."
    return frame[[key in kept for key in keys]], note


def _rounded(number: float | bool | None) -> float:
    """A number with the digits that the page has."""
    return round(float(number or 0.0), DECIMALS)
