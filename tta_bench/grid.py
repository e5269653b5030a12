"""Benchmark → cells. A cell is model × quantizer × method × stream × seed, as plain data."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import product
from typing import Any

from pydantic import ValidationError

from tta_bench import registry
from tta_bench.api import Bits, Domain, Method, Plugin, Stream, Target
from tta_bench.config import Benchmark, Choice, make, make_data
from tta_bench.corruptions.apply import version_of
from tta_bench.errors import ConfigError, Problem, UserError
from tta_bench.identity import PluginIdentity, identify
from tta_bench.parameters import check_params
from tta_bench.schema import Filter, StreamSection

MAX_CELLS = 100_000
AXES = ("data", "model", "quantizer", "method")
PROTOCOL = ("domains", "rounds", "batch_size", "limit", "order", "reset", "seed", "threads")


@dataclass(frozen=True)
class Labels:
    """Names and places of a cell's row; they may change without touching its numbers."""

    model: str
    quantizer: str
    method: str
    order: tuple[int, int, int]
    stream: str = ""  # severity and batch size, where the benchmark has several


@dataclass(frozen=True)
class Cell:
    """One row of the benchmark and one seed."""

    data: PluginIdentity
    model: PluginIdentity
    quantizer: PluginIdentity
    method: PluginIdentity
    corruptions: tuple[PluginIdentity, ...]  # those of the domains that are corruptions of ours
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
        """The stream this cell runs over, given how many test images there are."""
        domains = tuple(Domain(*d) for d in self.domains)
        count = min(self.limit or images, images)
        return Stream(domains, self.rounds, self.batch_size, count, self.order, self.seed)

    @property
    def plugins(self) -> tuple[PluginIdentity, ...]:
        """All plugins that have a part in the cell's numbers."""
        return (self.data, self.model, self.quantizer, self.method, *self.corruptions)

    @cached_property
    def code(self) -> str:
        """SHA-256 (first 12 digits) over the source code of its plugins; every record carries it."""
        return _sha256([plugin.code for plugin in self.plugins])[:12]

    def with_key(self) -> Cell:
        """The cell under its own name: readable, and different whenever a number could differ."""
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


def _sha256(plain: Any) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def expand(benchmark: Benchmark, file: str = "benchmark") -> list[Cell]:
    """All cells of a benchmark, in the order of the file."""
    axes = (benchmark.models, benchmark.quantizers, benchmark.methods)
    streams = _streams(benchmark.stream)
    total = math.prod(map(len, (*axes, benchmark.seeds, streams)))
    if total > MAX_CELLS:
        text = f"{total} cells, more than {MAX_CELLS}. Use fewer entries, sweep values or seeds."
        raise ConfigError(file, [Problem("", text)])
    makers = [(_Maker(replace(benchmark, stream=stream)), name) for stream, name in streams]
    cells = []
    for (i, m), (j, q), (k, h) in product(*(enumerate(axis) for axis in axes)):
        for (maker, name), seed in product(makers, benchmark.seeds):
            cell = maker.cell(m, q, h, seed, (i, j, k), name)
            if _wanted(cell, benchmark):
                cells.append(cell)
    if problems := [problem for maker, _ in makers for problem in maker.problems]:
        raise ConfigError(file, list(dict.fromkeys(problems)))
    if not cells:
        raise ConfigError(file, [Problem("include", "no cell is left. Loosen include or exclude.")])
    return _distinct(cells, file)


def _streams(stream: StreamSection) -> list[tuple[StreamSection, str]]:
    """A stream for every severity and batch size, named where there are several."""
    found = []
    for severity, batch_size in product(stream.severity, stream.batch_size):
        names = [f"severity {severity}"] if len(stream.severity) > 1 else []
        names += [f"batch size {batch_size}"] if len(stream.batch_size) > 1 else []
        one = stream.model_copy(update={"severity": [severity], "batch_size": [batch_size]})
        found.append((one, ", ".join(names)))
    return found


def _distinct(cells: list[Cell], file: str) -> list[Cell]:
    seen: dict[str, Cell] = {}
    for cell in cells:
        twin = seen.setdefault(cell.key, cell)
        # A method that gathers larger batches is the same cell for several batch sizes.
        if twin is not cell and twin.labels.stream == cell.labels.stream:
            text = (
                f'"{twin.labels.method}" and "{cell.labels.method}" are the same method with the same '
                f"parameters on {cell.labels.model} {cell.bits}. Remove one."
            )
            raise ConfigError(file, [Problem("methods", text)])
    return list(seen.values())


class _Maker:
    """Fills in defaults, presets and fingerprints; each fingerprint is taken once."""

    def __init__(self, benchmark: Benchmark) -> None:
        self.benchmark = benchmark
        self.problems: list[Problem] = []
        self._plugins: dict[tuple[str, str], PluginIdentity] = {}

    def cell(
        self,
        model: Choice,
        quantizer: Choice,
        method: Choice,
        seed: int,
        order: tuple[int, int, int],
        name: str,
    ) -> Cell:
        stream = self.benchmark.stream
        quantised = self.plugin("quantizers", quantizer)
        bits = str(Bits.parse(quantised.params.get("bits", "FP32")))
        adapting = self.method(method, model, quantizer.use, bits, seed)
        plugin: Method = adapting.make()
        cell = Cell(
            data=self.data(model),
            model=self.plugin("models", model),
            quantizer=quantised,
            method=adapting,
            corruptions=self.corruptions,
            domains=self.domains,
            rounds=stream.rounds,
            batch_size=max(stream.batch_size[0], plugin.gathers),
            limit=self.limit,
            order=stream.order,
            reset=(method.reset or stream.reset) if plugin.memory == "stream" else "never",
            seed=seed,
            threads=self.benchmark.run.threads,
            labels=Labels(model.name, quantizer.name, method.name, order, name),
        )
        return cell.with_key()

    @cached_property
    def domains(self) -> tuple[tuple[str, int], ...]:
        stream = self.benchmark.stream
        steady = {"clean", *make(self.benchmark.data, "data").own_domains()}
        return tuple((c, 0 if c in steady else stream.severity[0]) for c in stream.corruptions)

    @cached_property
    def corruptions(self) -> tuple[PluginIdentity, ...]:
        known, names = set(registry.names("corruptions")), dict.fromkeys(name for name, _ in self.domains)
        used = {name: registry.load("corruptions", name) for name in names if name in known}
        return tuple(identify("corruptions", name, {}, version_of(used[name]), "") for name in used)

    def data(self, model: Choice) -> PluginIdentity:
        """The data as this model looks at it; presets do not touch what its fingerprint is taken of."""
        known = ("data", model.name)
        if known not in self._plugins:
            choice = self.benchmark.data
            plugin = make_data(choice, make(model, "models"))
            self._plugins[known] = identity_of("data", choice.use, plugin, self.data_fingerprint)
        return self._plugins[known]

    @cached_property
    def _data(self) -> Any:
        return make(self.benchmark.data, "data")

    @cached_property
    def data_fingerprint(self) -> str:
        parts = [self._data.fingerprint()]
        parts += [self._data.domain_fingerprint(Domain(*domain)) for domain in self.domains]
        return hashlib.sha256("/".join(parts).encode()).hexdigest() if any(parts[1:]) else parts[0]

    @cached_property
    def limit(self) -> int | None:
        """The limit, or None if it leaves out no image: both would be the same computation."""
        limit = self.benchmark.stream.limit
        if limit is None or not self.data_fingerprint:  # images that are not here cannot be counted
            return limit
        with registry.asking("data", self.benchmark.data.use):
            return limit if limit < len(self._data.test_labels()) else None

    def plugin(self, group: str, choice: Choice) -> PluginIdentity:
        known = (group, choice.name)
        if known not in self._plugins:
            plugin = make(choice, group)
            with registry.asking(group, choice.use):
                fingerprint = plugin.fingerprint() if hasattr(plugin, "fingerprint") else ""
            self._plugins[known] = identity_of(group, choice.use, plugin, fingerprint)
        return self._plugins[known]

    def method(self, choice: Choice, model: Choice, quantizer: str, bits: str, seed: int) -> PluginIdentity:
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
        try:
            return identity_of("methods", choice.use, cls(**params))
        except ValueError as error:  # each value may fit alone, and not together with a preset
            raise UserError(
                f'method "{choice.name}" on {model.name} {bits}, with presets: {error} Set it in the file.'
            ) from None

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


def identity_of(group: str, use: str, plugin: Plugin, fingerprint: str = "") -> PluginIdentity:
    """A plugin's identity; its fields have their own types, so that 16 and 16.0 are one value."""
    params = dataclasses.asdict(plugin)  # type: ignore[call-overload]
    return identify(group, use, params, plugin.version, fingerprint)


def _wanted(cell: Cell, benchmark: Benchmark) -> bool:
    included = not benchmark.include or any(matches(cell, f) for f in benchmark.include)
    return included and not any(matches(cell, f) for f in benchmark.exclude)


def only(cells: Sequence[Cell], texts: Sequence[str]) -> list[Cell]:
    """The cells that fit `--only key=pattern`: of several patterns for one key any, of several keys all."""
    kept = list(cells)
    by_key: dict[str, list[Cell]] = {}
    for text in texts:
        key, wanted = _only_filter(text)
        found = [cell for cell in cells if matches(cell, wanted)]
        if not found:
            raise UserError(f"--only {text}: no cell matches. `tta-bench plan` lists them.")
        by_key.setdefault(key, []).extend(found)
    for found in by_key.values():
        keys = {cell.key for cell in found}
        kept = [cell for cell in kept if cell.key in keys]
    if cells and not kept:
        flags = " ".join(f"--only {text}" for text in texts)
        raise UserError(f"{flags}: no cell matches all of it. `tta-bench plan` lists them.")
    return kept


def _only_filter(text: str) -> tuple[str, Filter]:
    """Key and filter of one `--only key=pattern`."""
    key, equals, value = text.partition("=")
    if not equals or key not in Filter.model_fields:
        known = ", ".join(Filter.model_fields)
        raise UserError(f"--only {text}: not of the form key=pattern. Keys: {known}.")
    try:
        return key, Filter.model_validate({key: value})
    except ValidationError:
        raise UserError(f"--only {text}: {value!r} does not fit {key}.") from None


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
