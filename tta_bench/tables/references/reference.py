"""What a reference is: published numbers, each with the cell that it belongs to and how it was made.

Plugins register functions that return a `Reference` as entry points of the group `tta_bench.references`.
A number is matched to our cell by plugin, parameters, weights, stream and data, never by the name of a row.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tta_bench.description import Description

if TYPE_CHECKING:
    from pandas import DataFrame

Round = int | Literal["all", "reset"] | None
NOTHING: Mapping[str, Any] = MappingProxyType({})
# Facts about a stream that cells state only if they differ from these values.
UNSTATED: Mapping[str, Any] = MappingProxyType(
    {"scenario": "continual", "domain_order": "file", "straddle": False, "adapt_every": 1, "window": 1}
)
RANDOM_ORDERS = ("shuffled", "reshuffled", "aligned")  # of images; which of them was used is no difference


class Citation(NamedTuple):
    """Which published number belongs to a column; only an accuracy has a column and a round."""

    metric: str
    column: str = ""
    round: int | Literal["all"] | None = None


class Identity(NamedTuple):
    """The facts about a cell of ours that a publication also gives."""

    data: str
    model: str
    bits: str
    method: str
    settings: Mapping[str, Any]
    reset: str
    stated: Mapping[str, Any] = NOTHING  # of the stream and the model; empty if nothing is known


@dataclass(frozen=True)
class Wanted:
    """The cell behind a published number; `reset` is None where resetting changes nothing.

    `domains` are those that an accuracy averages over; empty where the data has only one.
    """

    data: frozenset[str]
    domains: tuple[str, ...]
    images: int  # per domain
    model: str
    bits: str
    method: str
    settings: Mapping[str, Any]
    reset: str | None
    told: Mapping[str, Any] = field(default_factory=dict)  # parameters that the cell need not have
    stream: Mapping[str, Any] = field(default_factory=dict)  # what the cell must state about its stream
    weights: Mapping[str, Any] = field(default_factory=dict)  # parameters of the model
    other_weights: frozenset[str] = frozenset()  # plugins of the same network with other weights
    missing: str = ""  # why no cell of ours can be this cell; empty if one can

    def matches(self, cell: Identity) -> bool:
        """Whether a cell of ours is this cell."""
        return self.differences(cell) == ()

    def differences(self, cell: Identity) -> tuple[str, ...] | None:
        """How a cell of ours differs from this one; None if it has another network, method, data or bits."""
        if (cell.bits, cell.method) != (self.bits, self.method) or cell.data not in self.data:
            return None
        if cell.model != self.model and cell.model not in self.other_weights:
            return None
        return (*filter(None, [self.missing]), *self._weights(cell), *self._settings(cell))

    def remarks(self, cell: Identity) -> Iterator[str]:
        """How a cell of ours that is this cell may still differ from it."""
        for name, value in self.told.items():
            yield from _difference(name, cell.settings.get(name, value), value)

    def _weights(self, cell: Identity) -> Iterator[str]:
        if cell.stated.get("model.weights") == "random":
            yield "random weights"
        elif cell.model != self.model:
            yield f"other weights: {cell.model}, published with {self.model}"
        elif cell.stated:
            for name, value in self.weights.items():
                # A path is not stated: cells of equal weights in different places are the same.
                yield from _difference(name, cell.stated.get(f"model.{name}", "a file of your own"), value)

    def _settings(self, cell: Identity) -> Iterator[str]:
        for name, value in self.settings.items():
            yield from _difference(name, cell.settings.get(name), value)
        if self.reset is not None:
            yield from _difference("reset", cell.reset, self.reset)
        if not cell.stated:
            return
        for name, value in self.stream.items():
            ours = cell.stated.get(name, UNSTATED.get(name, value))
            if name != "order" or not {ours, value}.issubset(RANDOM_ORDERS):
                yield from _difference(name.replace("_", " "), ours, value)


def _difference(name: str, ours: Any, published: Any) -> Iterator[str]:
    if ours != published:
        yield f"{name} {_word(ours)}, published with {_word(published)}"


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@dataclass(frozen=True)
class PublishedSetting:
    """How the numbers of one published table were made."""

    protocol: str  # scenario, reset, batches and rounds, in words
    rounds: int
    severity: int
    source: str  # where the numbers were read
    confidence: str  # how far they can be trusted


@dataclass(frozen=True)
class Published:
    """One number of a publication; `note` says if something about it is unusual."""

    table: str
    model: str
    bits: str
    method: str
    round: Round
    column: str
    metric: str
    value: float
    half_step: float  # half a unit of its last digit: the largest error from rounding
    wanted: Wanted
    setting: PublishedSetting
    lineage: str = ""  # of the weights
    layout: str = ""
    note: str = ""
    error: bool = False  # printed as an error in %; the value is 100 − error

    def note_beside(self, cell: Identity) -> str:
        """The note on this number beside a cell of ours."""
        return "; ".join([*filter(None, [self.note]), *self.wanted.remarks(cell)])

    def belongs_to(self, citation: Citation) -> bool:
        """Whether this number belongs to a column."""
        if self.metric != citation.metric:
            return False
        if self.metric != "accuracy":
            return True
        return self.column == citation.column and self.round in (citation.round, "reset")


@dataclass(frozen=True)
class Reference:
    """All numbers of one publication."""

    title: str
    rows: tuple[Published, ...]
    name: str = ""  # under which it is registered
    stand_ins: frozenset[str] = frozenset()  # data that imitates the data of the publication
    compares: Callable[[DataFrame], Description] | None = None  # if it is not compared number by number

    @cached_property
    def _places(self) -> dict[tuple[str, str], list[Published]]:
        """The numbers by metric and, of accuracies, column."""
        found: dict[tuple[str, str], list[Published]] = defaultdict(list)
        for row in self.rows:
            found[row.metric, row.column if row.metric == "accuracy" else ""].append(row)
        return found

    def find(self, cell: Identity, citation: Citation, layout: str = "") -> Published | None:
        """The number for a cell and a column, with its note beside the cell.

        If several match, it is the one from the table with this layout.
        """
        place = (citation.metric, citation.column if citation.metric == "accuracy" else "")
        near = self._places.get(place, [])
        found = [row for row in near if row.belongs_to(citation) and row.wanted.matches(cell)]
        first = min(found, key=lambda row: row.layout != layout, default=None)
        return first and replace(first, note=first.note_beside(cell))


def settings_of(rows: Iterable[Published]) -> list[str]:
    """Weights, protocols and numbers of images behind some numbers, a sentence each."""
    known = list(rows)
    weights = {f"{row.model}: {row.lineage}": None for row in known if row.lineage}
    protocols = {f"{row.setting.protocol}, {row.wanted.images:,} images per domain": None for row in known}
    confidence = dict.fromkeys(row.setting.confidence for row in known if row.setting.confidence)
    sentences = [f"Weights: {'; '.join(weights)}."] if weights else []
    sentences.append(f"Protocol: {'; '.join(protocols)}.")
    if any(row.error for row in known):
        sentences.append("Printed as errors in %; an accuracy here is 100 minus the error.")
    return sentences + ([f"Confidence: {'; '.join(confidence)}."] if confidence else [])
