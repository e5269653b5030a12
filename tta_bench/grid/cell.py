"""A cell, as plain data: one combination of model, quantizer, method, stream and seed."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tta_bench.api import Bits, Domain, Stream
from tta_bench.plugins.identity import PluginIdentity

AXES = ("data", "model", "quantizer", "method")
PROTOCOL = ("domains", "rounds", "batch_size", "limit", "order", "reset", "seed", "threads")


@dataclass(frozen=True)
class Labels:
    """The names and the order of a cell's row; they do not affect its numbers."""

    model: str
    quantizer: str
    method: str
    order: tuple[int, int, int]
    stream: str = ""  # severity and batch size, if the benchmark has several


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

    @property
    def bits(self) -> str:
        """`FP32`, `W8A8`, …"""
        return str(Bits.parse(self.quantizer.params.get("bits", "FP32")))

    @property
    def records_expected(self) -> int:
        """One for every round and domain."""
        return self.rounds * len(self.domains)

    def stream(self, images: int) -> Stream:
        """The stream of this cell, given the number of test images."""
        domains = tuple(Domain(*d) for d in self.domains)
        count = min(self.limit or images, images)
        return Stream(domains, self.rounds, self.batch_size, count, self.order, self.seed)

    @property
    def plugins(self) -> tuple[PluginIdentity, ...]:
        """All plugins that affect the cell's numbers."""
        return (self.data, self.model, self.quantizer, self.method, *self.corruptions)

    @cached_property
    def code(self) -> str:
        """SHA-256 (first 12 digits) over the source code of its plugins; every record carries it."""
        return _sha256([plugin.code for plugin in self.plugins])[:12]

    def with_key(self) -> Cell:
        """The cell with its key: readable, and different whenever a number could differ."""
        facts = {"plugins": [plugin.key_facts for plugin in self.plugins]}
        identity = facts | {name: getattr(self, name) for name in PROTOCOL}
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
    )


def row_of(cell: Cell) -> dict[str, Any]:
    """A cell as a manifest describes it: identity, labels, and facts of its method; see `cell_of`."""
    return dataclasses.asdict(cell) | {
        "code": cell.code,
        "bits": cell.bits,
        "records_expected": cell.records_expected,
        "variant": str(cell.method.params.get("variant", "")),
        "backprop": cell.method.make().backprop,
    }


def _sha256(plain: Any) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
