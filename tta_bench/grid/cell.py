"""A cell, as plain data: one combination of model, quantizer, method, stream and seed."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from tta_bench.api import Bits, Domain, Scenario, Stream, StreamSchedule
from tta_bench.plugins.identity import PluginIdentity
from tta_bench.streams.continual import Continual

AXES = ("data", "model", "quantizer", "method")
PROTOCOL = ("domains", "rounds", "batch_size", "limit", "order", "reset", "seed", "threads")
# Settings that are in keys and manifests only if they differ from these values, which older cells imply.
LATER: Mapping[str, Any] = MappingProxyType(
    {"domain_order": "file", "straddle": False, "adapt_every": 1, "window": 1}
)


@dataclass(frozen=True)
class Labels:
    """The names and the order of a cell's row; they do not affect its numbers."""

    model: str
    quantizer: str
    method: str
    order: tuple[int, int, int]
    stream: str = ""  # scenario, severity, batch size and order of domains, if there are several


@dataclass(frozen=True)
class Cell:
    """One row of the benchmark and one seed."""

    data: PluginIdentity
    model: PluginIdentity
    quantizer: PluginIdentity
    method: PluginIdentity
    corruptions: tuple[PluginIdentity, ...]  # those domains that are corruption plugins
    domains: tuple[tuple[str, int], ...]
    rounds: int
    batch_size: int
    limit: int | None  # None: all test images
    order: str
    reset: str
    seed: int
    threads: int
    labels: Labels = field(compare=False)
    key: str = ""
    scenario: PluginIdentity | None = None  # None: `continual`, which has no parameters
    domain_order: str = "file"
    straddle: bool = False
    adapt_every: int = 1  # batches of a segment; the others are only predicted
    window: int = 1  # images to adapt to at once, if batches have one image

    def __getstate__(self) -> dict[str, Any]:
        """Its fields: plain data, without instances of plugins that properties keep."""
        return {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}

    @property
    def bits(self) -> str:
        """`FP32`, `W8A8`, …"""
        return str(Bits.parse(self.quantizer.params.get("bits", "FP32")))

    @property
    def records_expected(self) -> int:
        """One for every round and every visit of a domain in it."""
        visits = self.visits
        return self.rounds * len(visits[0]) if len(visits) == 1 else sum(map(len, visits))

    @property
    def reset_every(self) -> int | None:
        """After how many batches the method is reset; None: not by their number."""
        if self.reset == "batch":
            return 1
        name, _, number = self.reset.partition(" ")
        return int(number) if name == "every" else None

    @property
    def step_images(self) -> int:
        """Images of a full step of the method."""
        return max(self.batch_size, self.window)

    @cached_property
    def schedule(self) -> StreamSchedule:
        """The segments of every round."""
        scenario: Scenario = Continual() if self.scenario is None else self.scenario.make()
        domains = tuple(Domain(*domain) for domain in self.domains)
        how = (self.order, self.domain_order, self.straddle)
        return StreamSchedule(domains, self.rounds, self.seed, scenario, *how)

    @cached_property
    def visits(self) -> list[list[tuple[str, int, int]]]:
        """Corruption, severity and number of the visits of each round; of one if all rounds have the same."""
        rounds = range(1, (1 if self.schedule.fixed else self.rounds) + 1)
        found = [[visit.place for visit in self.schedule.visits(round)] for round in rounds]
        return found[:1] if all(sorted(each) == sorted(found[0]) for each in found) else found

    @property
    def visited(self) -> list[Domain]:
        """Every domain that some round visits, in order of arrival."""
        return list(dict.fromkeys(Domain(*place[:2]) for visits in self.visits for place in visits))

    def count(self, images: int) -> int:
        """How many test images of each domain are used, given the number of all."""
        return min(self.limit or images, images)

    def stream(self, labels: np.ndarray) -> Stream:
        """The stream of this cell, given the labels of all test images."""
        return Stream(self.schedule, self.batch_size, labels[: self.count(len(labels))])

    @property
    def plugins(self) -> tuple[PluginIdentity, ...]:
        """All plugins that affect the cell's numbers."""
        scenario = () if self.scenario is None else (self.scenario,)
        return (self.data, self.model, self.quantizer, self.method, *self.corruptions, *scenario)

    @cached_property
    def code(self) -> str:
        """SHA-256 (first 12 digits) over the source code of its plugins; every record carries it."""
        return _sha256([plugin.code for plugin in self.plugins])[:12]

    def with_key(self) -> Cell:
        """The cell with its key: readable, and different whenever a number could differ."""
        facts = {"plugins": [plugin.key_facts for plugin in self.plugins]}
        later = {name: getattr(self, name) for name, value in LATER.items() if getattr(self, name) != value}
        identity = facts | {name: getattr(self, name) for name in PROTOCOL} | later
        readable = f"{self.model.use}.{self.quantizer.use}-{self.bits}.{self.method.use}"
        return dataclasses.replace(self, key=f"{readable}.s{self.seed}-{_sha256(identity)[:12]}")


def cell_of(row: dict[str, Any]) -> Cell:
    """The cell that a manifest describes."""
    plugins: dict[str, Any] = {name: PluginIdentity(**row[name]) for name in AXES}
    labels = row["labels"] | {"order": tuple(row["labels"]["order"])}
    return Cell(
        **plugins,
        corruptions=tuple(PluginIdentity(**each) for each in row["corruptions"]),
        **{name: row[name] for name in PROTOCOL if name != "domains"},
        domains=tuple((name, severity) for name, severity in row["domains"]),
        labels=Labels(**labels),
        key=row["key"],
        scenario=PluginIdentity(**row["scenario"]) if row.get("scenario") else None,
        **{name: row.get(name, value) for name, value in LATER.items()},
    )


def row_of(cell: Cell) -> dict[str, Any]:
    """A cell as a manifest describes it: identity, labels, and facts of its method; see `cell_of`."""
    later = {**LATER, "scenario": None}
    fields = {k: v for k, v in dataclasses.asdict(cell).items() if k not in later or v != later[k]}
    once = [[(*domain, 1) for domain in cell.domains]]
    return fields | {
        **({} if cell.visits == once else {"visits": cell.visits}),
        "code": cell.code,
        "bits": cell.bits,
        "records_expected": cell.records_expected,
        "variant": str(cell.method.params.get("variant", "")),
        "backprop": cell.method.make().backprop,
    }


def _sha256(plain: Any) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
