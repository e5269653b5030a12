"""Benchmark → cells. A cell is model × quantizer × method × stream × seed, as plain data."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import product
from typing import Any

from pydantic import ValidationError

from tta_bench import registry
from tta_bench.api import Bits, Domain, Plugin, Stream, Target
from tta_bench.config import Benchmark, Choice, make, make_data
from tta_bench.corruptions.apply import version_of
from tta_bench.errors import ConfigError, Problem, UserError
from tta_bench.parameters import check_params
from tta_bench.schema import Filter

MAX_CELLS = 100_000


@dataclass(frozen=True)
class Part:
    """A plugin with every parameter filled in, and what its numbers depend on."""

    use: str
    params: dict[str, Any]
    version: str
    fingerprint: str = ""

    def make(self, group: str) -> Any:
        """The plugin itself."""
        return registry.load(group, self.use)(**self.params)

    def identity(self, group: str) -> dict[str, Any]:
        """What belongs in a key: not where files lie, but what is in them."""
        where = registry.load(group, self.use).paths
        params = {k: v for k, v in self.params.items() if k not in where}
        return dataclasses.asdict(self) | {"params": params}


@dataclass(frozen=True)
class Labels:
    """Names and places of a cell's row; they may change without touching its numbers."""

    model: str
    quantizer: str
    method: str
    order: tuple[int, int, int]


@dataclass(frozen=True)
class Cell:
    """One row of the benchmark and one seed."""

    data: Part
    model: Part
    quantizer: Part
    method: Part
    domains: tuple[tuple[str, int], ...]
    rounds: int
    batch_size: int
    limit: int | None
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
        """The stream this cell runs over, given how many test images there are."""
        domains = tuple(Domain(*d) for d in self.domains)
        count = min(self.limit or images, images)
        return Stream(domains, self.rounds, self.batch_size, count, self.order, self.seed)

    def with_key(self) -> Cell:
        """The cell under its own name: readable, and different whenever a number could differ."""
        groups = {"data": "data", "model": "models", "quantizer": "quantizers", "method": "methods"}
        identity = {k: getattr(self, k).identity(g) for k, g in groups.items()}
        for name in (
            "domains",
            "rounds",
            "batch_size",
            "limit",
            "order",
            "reset",
            "seed",
            "threads",
        ):
            identity[name] = getattr(self, name)
        known = set(registry.names("corruptions"))
        identity["corruptions"] = [
            version_of(registry.load("corruptions", c)) for c, _ in self.domains if c in known
        ]
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]
        readable = f"{self.model.use}.{self.quantizer.use}-{self.bits}.{self.method.use}"
        return dataclasses.replace(self, key=f"{readable}.s{self.seed}-{digest}")


def expand(benchmark: Benchmark, file: str = "benchmark") -> list[Cell]:
    """All cells of a benchmark, in the order of the file."""
    axes = (benchmark.models, benchmark.quantizers, benchmark.methods)
    total = len(axes[0]) * len(axes[1]) * len(axes[2]) * len(benchmark.seeds)
    if total > MAX_CELLS:
        text = f"{total} cells, more than {MAX_CELLS}. Use fewer entries, sweep values or seeds."
        raise ConfigError(file, [Problem("", text)])
    maker = _Maker(benchmark)
    cells = []
    for (i, m), (j, q), (k, h) in product(*(enumerate(axis) for axis in axes)):
        for seed in benchmark.seeds:
            cell = maker.cell(m, q, h, seed, (i, j, k))
            if _wanted(cell, benchmark):
                cells.append(cell)
    if maker.problems:
        raise ConfigError(file, list(dict.fromkeys(maker.problems)))
    if not cells:
        raise ConfigError(file, [Problem("include", "no cell is left. Loosen include or exclude.")])
    return _distinct(cells, file)


def _distinct(cells: list[Cell], file: str) -> list[Cell]:
    seen: dict[str, Cell] = {}
    for cell in cells:
        twin = seen.setdefault(cell.key, cell)
        if twin is not cell:
            text = (
                f'"{twin.labels.method}" and "{cell.labels.method}" are the same method with the same '
                f"parameters on {cell.labels.model} {cell.bits}. Remove one."
            )
            raise ConfigError(file, [Problem("methods", text)])
    return cells


class _Maker:
    """Fills in defaults, presets and fingerprints; each fingerprint is taken once."""

    def __init__(self, benchmark: Benchmark) -> None:
        self.benchmark = benchmark
        self.problems: list[Problem] = []
        self._parts: dict[tuple[str, str], Part] = {}

    def cell(
        self,
        model: Choice,
        quantizer: Choice,
        method: Choice,
        seed: int,
        order: tuple[int, int, int],
    ) -> Cell:
        stream = self.benchmark.stream
        quantizer_part = self.part("quantizers", quantizer)
        bits = str(Bits.parse(quantizer_part.params.get("bits", "FP32")))
        method_part = self.method(method, model, quantizer.use, bits, seed)
        cell = Cell(
            data=self.data(model),
            model=self.part("models", model),
            quantizer=quantizer_part,
            method=method_part,
            domains=self.domains,
            rounds=stream.rounds,
            batch_size=max(stream.batch_size, method_part.make("methods").gathers),
            limit=stream.limit,
            order=stream.order,
            reset=method.reset or stream.reset,
            seed=seed,
            threads=self.benchmark.run.threads,
            labels=Labels(model.name, quantizer.name, method.name, order),
        )
        return cell.with_key()

    @cached_property
    def domains(self) -> tuple[tuple[str, int], ...]:
        stream = self.benchmark.stream
        steady = {"clean", *make(self.benchmark.data, "data").own_domains()}
        return tuple((c, 0 if c in steady else stream.severity) for c in stream.corruptions)

    def data(self, model: Choice) -> Part:
        """The data as this model looks at it; presets do not touch what its fingerprint is taken of."""
        known = ("data", model.name)
        if known not in self._parts:
            choice = self.benchmark.data
            plugin = make_data(choice, make(model, "models"))
            self._parts[known] = _part(choice.use, plugin, self.data_fingerprint)
        return self._parts[known]

    @cached_property
    def data_fingerprint(self) -> str:
        plugin = make(self.benchmark.data, "data")
        parts = [plugin.fingerprint()]
        parts += [plugin.domain_fingerprint(Domain(*domain)) for domain in self.domains]
        return hashlib.sha256("/".join(parts).encode()).hexdigest() if any(parts[1:]) else parts[0]

    def part(self, group: str, choice: Choice) -> Part:
        known = (group, choice.name)
        if known not in self._parts:
            plugin = make(choice, group)
            with registry.asking(group, choice.use):
                fingerprint = plugin.fingerprint() if hasattr(plugin, "fingerprint") else ""
            self._parts[known] = _part(choice.use, plugin, fingerprint)
        return self._parts[known]

    def method(self, choice: Choice, model: Choice, quantizer: str, bits: str, seed: int) -> Part:
        """Field defaults < the method's presets < a presets file < the file's presets < what the entry says.

        A method that draws random numbers has a field `seed`; the cell's own goes there.
        """
        cls = registry.load("methods", choice.use)
        looking = make(model, "models")
        target = Target(looking.title() or model.use, looking.family, bits)
        drawn = {"seed": seed} if "seed" in {f.name for f in dataclasses.fields(cls)} else {}
        params = drawn | cls.presets(target)
        for tuned in self.benchmark.tuned:
            params |= tuned.set if tuned.fits(choice, target, quantizer) else {}
        params |= self._file_presets(choice, target) | choice.params
        return _part(choice.use, cls(**params))

    def _file_presets(self, choice: Choice, target: Target) -> dict[str, Any]:
        chosen: dict[str, Any] = {}
        for i, preset in enumerate(self.benchmark.presets):
            wanted = (preset.method, preset.model, preset.family, preset.bits)
            found = (choice.use, target.model, target.family, target.bits)
            if all(fnmatchcase(f, w) for f, w in zip(found, wanted, strict=True)):
                cls = registry.load("methods", choice.use)
                checked, wrong = check_params(cls, preset.set, f"presets[{i}].set")
                self.problems += wrong
                chosen |= {} if wrong else checked
        return chosen


def _part(use: str, plugin: Plugin, fingerprint: str = "") -> Part:
    return Part(use, dataclasses.asdict(plugin), plugin.version, fingerprint)  # type: ignore[call-overload]


def _wanted(cell: Cell, benchmark: Benchmark) -> bool:
    included = not benchmark.include or any(matches(cell, f) for f in benchmark.include)
    return included and not any(matches(cell, f) for f in benchmark.exclude)


def only(cells: Sequence[Cell], text: str) -> list[Cell]:
    """The cells that fit one `--only key=pattern`."""
    key, equals, value = text.partition("=")
    if not equals or key not in Filter.model_fields:
        known = ", ".join(Filter.model_fields)
        raise UserError(f"--only {text}: not of the form key=pattern. Keys: {known}.")
    try:
        wanted = Filter.model_validate({key: value})
    except ValidationError:
        raise UserError(f"--only {text}: {value!r} does not fit {key}.") from None
    found = [cell for cell in cells if matches(cell, wanted)]
    if not found:
        raise UserError(f"--only {text}: no cell matches. `tta-bench plan` lists them.")
    return found


def matches(cell: Cell, wanted: Filter) -> bool:
    """Whether a cell fits every pattern of a filter, by plugin name or by row name."""
    pairs = [
        (wanted.model, (cell.model.use, cell.labels.model)),
        (wanted.quantizer, (cell.quantizer.use, cell.labels.quantizer)),
        (wanted.method, (cell.method.use, cell.labels.method)),
        (wanted.bits, (cell.bits,)),
        (None if wanted.seed is None else str(wanted.seed), (str(cell.seed),)),
    ]
    return all(
        pattern is None or any(name == pattern or fnmatchcase(name, pattern) for name in names)
        for pattern, names in pairs
    )
