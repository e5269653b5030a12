"""Benchmark → cells: the product of all axes, with defaults, presets and fingerprints filled in."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import product
from typing import Any

from tta_bench.api import Bits, Domain, Method, Plugin, StreamSchedule, Target
from tta_bench.config import Benchmark, PluginChoice, make, make_data
from tta_bench.config.parameters import check_params
from tta_bench.config.stream_values import batches_between, cotta_numbers
from tta_bench.corruptions.apply import version_of
from tta_bench.errors import ConfigError, Problem, UserError
from tta_bench.grid.cell import Cell, Labels
from tta_bench.grid.filters import wanted
from tta_bench.plugins import registry
from tta_bench.plugins.identity import PluginIdentity, identify
from tta_bench.streams.names import DOMAIN_ORDER, name_of
from tta_bench.streams.schedules.cotta_orders import cotta_places

MAX_CELLS = 100_000


def expand(benchmark: Benchmark, file: str = "benchmark") -> list[Cell]:
    """All cells of a benchmark, in the order of the file."""
    axes = (benchmark.models, benchmark.quantizers, benchmark.methods)
    streams = _streams(benchmark)
    total = math.prod(map(len, (*axes, benchmark.seeds, streams)))
    if total > MAX_CELLS:
        text = f"{total} cells, more than {MAX_CELLS}. Use fewer entries, sweep values or seeds."
        raise ConfigError(file, [Problem("", text)])
    builders = [(_CellBuilder(one), name) for one, name in streams]
    cells = []
    for (i, m), (j, q), (k, h) in product(*(enumerate(axis) for axis in axes)):
        for (builder, name), seed in product(builders, benchmark.seeds):
            cell = builder.cell(m, q, h, seed, (i, j, k), name)
            if wanted(cell, benchmark.include, benchmark.exclude):
                cells.append(cell)
    if problems := [problem for builder, _ in builders for problem in builder.problems]:
        raise ConfigError(file, list(dict.fromkeys(problems)))
    if not cells:
        raise ConfigError(file, [Problem("include", "no cell is left. Loosen include or exclude.")])
    return _distinct(cells, file)


def _streams(benchmark: Benchmark) -> list[tuple[Benchmark, str]]:
    """The benchmark on every stream alone, with a name of each axis that has several values."""
    stream = benchmark.stream
    found: list[tuple[Benchmark, str]] = []
    axes = (stream.severity, stream.batch_size, stream.domain_order)
    for scenario, severity, batch_size, order in product(benchmark.scenarios, *axes):
        alone = {"severity": [severity], "batch_size": [batch_size], "domain_order": [order]}
        name = name_of(
            ("", scenario.name, benchmark.scenarios),
            ("severity", severity, stream.severity),
            ("batch size", batch_size, stream.batch_size),
            (DOMAIN_ORDER, order, stream.domain_order),
        )
        one = stream.model_copy(update=alone)
        found.append((replace(benchmark, stream=one, scenarios=(scenario,)), name))
    return found


def _distinct(cells: list[Cell], file: str) -> list[Cell]:
    seen: dict[str, Cell] = {}
    for cell in cells:
        twin = seen.setdefault(cell.key, cell)
        # A method that collects larger batches is the same cell for several batch sizes.
        if twin is not cell and twin.labels.stream == cell.labels.stream:
            text = (
                f'"{twin.labels.method}" and "{cell.labels.method}" are the same method with the same '
                f"parameters on {cell.labels.model} {cell.bits}. Remove one."
            )
            raise ConfigError(file, [Problem("methods", text)])
    return list(seen.values())


class _CellBuilder:
    """Makes cells with defaults, presets and fingerprints filled in; computes each fingerprint once."""

    def __init__(self, benchmark: Benchmark) -> None:
        self.benchmark = benchmark
        self.problems: list[Problem] = []
        self._plugins: dict[tuple[str, str], PluginIdentity] = {}

    def cell(
        self,
        model: PluginChoice,
        quantizer: PluginChoice,
        method: PluginChoice,
        seed: int,
        order: tuple[int, int, int],
        name: str,
    ) -> Cell:
        stream = self.benchmark.stream
        quantised = self.plugin("quantizers", quantizer)
        bits = str(Bits.parse(quantised.params.get("bits", "FP32")))
        adapting = self.method(method, model, quantizer.use, bits, seed)
        plugin: Method = adapting.make()
        lasting = plugin.memory == "stream"
        asked, batch_size = stream.batch_size[0], max(stream.batch_size[0], plugin.gathers)
        cell = Cell(
            data=self.data(model),
            model=self.plugin("models", model),
            quantizer=quantised,
            method=adapting,
            corruptions=self.corruptions,
            domains=self.domains,
            rounds=stream.rounds,
            batch_size=batch_size,
            limit=self.limit,
            order=stream.order,
            reset=_reset(method.reset or stream.reset, asked, batch_size) if lasting else "never",
            seed=seed,
            threads=self.benchmark.run.threads,
            labels=Labels(model.name, quantizer.name, method.name, order, name),
            scenario=self.scenario,
            domain_order="file" if cotta_numbers(stream.domain_order) else stream.domain_order[0],
            straddle=stream.straddle,
            adapt_every=stream.adapt_every if lasting else 1,
            window=1 if plugin.memory == "none" or plugin.gathers > 1 else stream.window,
        )
        self._check_scenario(cell)
        self._check_rate(cell, asked)
        return cell.with_key()

    @cached_property
    def scenario(self) -> PluginIdentity | None:
        """The scenario; None for `continual`, whose cells have had their keys since before scenarios."""
        (choice,) = self.benchmark.scenarios
        return None if choice.use == "continual" else self.plugin("streams", choice)

    def _check_scenario(self, cell: Cell) -> None:
        """Note why there is no such stream for a cell."""
        if cell.scenario is None:
            return
        size = self._data.expected_images()
        kept = self._data.classes()
        classes = cell.model.make().num_classes if kept is None else len(kept)
        domains, scenario = cell.schedule.domains, cell.schedule.scenario
        with registry.asking("streams", cell.scenario.use):
            found = scenario.problems(cell.count(size), classes, domains, cell.batch_size)
        self.problems += [Problem("stream.scenario", f"{cell.scenario.use}: {text}") for text in found]

    def _check_rate(self, cell: Cell, asked: int) -> None:
        """Note why a method cannot adapt at the rate of the stream, whose batches have `asked` images."""
        if cell.adapt_every > 1 and cell.batch_size > asked:
            text = (
                f'"{cell.labels.method}" joins batches of {asked} to batches of {cell.batch_size}, so that '
                "adapt_every would count other batches for it than for other methods. Remove one of the two."
            )
            self.problems.append(Problem("stream.adapt_every", text))
        if cell.window == 1:
            return
        with registry.asking("streams", "continual" if cell.scenario is None else cell.scenario.use):
            longest = max(cell.schedule.lengths(1, cell.count(self._data.expected_images())))
        if longest < cell.window:
            text = (
                f"the longest segment has {longest} images, so that a window of {cell.window} is never full "
                "and no method adapts. Lower it, raise stream.limit, or set straddle: true."
            )
            self.problems.append(Problem("stream.window", text))

    @cached_property
    def domains(self) -> tuple[tuple[str, int], ...]:
        stream = self.benchmark.stream
        steady = {"clean", *make(self.benchmark.data, "data").own_domains()}
        names = stream.corruptions
        for number in cotta_numbers(stream.domain_order):  # one, or none
            names = [names[i] for i in cotta_places(names, number)]
        return tuple((c, 0 if c in steady else stream.severity[0]) for c in names)

    @cached_property
    def _visited(self) -> list[Domain]:
        """The domains of which the data's fingerprint tells; they must be the same for all seeds."""
        domains = tuple(Domain(*domain) for domain in self.domains)
        if self.scenario is None:
            return list(domains)
        visits = StreamSchedule(domains, 1, seed=0, scenario=self.scenario.make()).visits(1)
        return list(dict.fromkeys(visit.domain for visit in visits))

    @cached_property
    def corruptions(self) -> tuple[PluginIdentity, ...]:
        known, names = set(registry.names("corruptions")), dict.fromkeys(name for name, _ in self.domains)
        used = {name: registry.load("corruptions", name) for name in names if name in known}
        return tuple(identify("corruptions", name, {}, version_of(used[name]), "") for name in used)

    def data(self, model: PluginChoice) -> PluginIdentity:
        """The data with the presets of this model, which do not change its fingerprint."""
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
        parts += map(self._data.domain_fingerprint, self._visited)
        return hashlib.sha256("/".join(parts).encode()).hexdigest() if any(parts[1:]) else parts[0]

    @cached_property
    def limit(self) -> int | None:
        """The limit, or None if it leaves out no image, so that both get the same key."""
        limit = self.benchmark.stream.limit
        if limit is None or not self.data_fingerprint:  # missing images cannot be counted
            return limit
        with registry.asking("data", self.benchmark.data.use):
            return limit if limit < len(self._data.test_labels()) else None

    def plugin(self, group: str, choice: PluginChoice) -> PluginIdentity:
        known = (group, choice.name)
        if known not in self._plugins:
            plugin = make(choice, group)
            with registry.asking(group, choice.use):
                fingerprint = plugin.fingerprint() if hasattr(plugin, "fingerprint") else ""
            self._plugins[known] = identity_of(group, choice.use, plugin, fingerprint)
        return self._plugins[known]

    def method(
        self, choice: PluginChoice, model: PluginChoice, quantizer: str, bits: str, seed: int
    ) -> PluginIdentity:
        """Field defaults < the method's presets < a presets file < the file's presets < its entry.

        A method that draws random numbers has a field `seed`, which is filled with the cell's seed.
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
        except ValueError as error:  # each value may be valid alone, but not together with a preset
            raise UserError(
                f'method "{choice.name}" on {model.name} {bits}, with presets: {error} Set it in the file.'
            ) from None

    def _file_presets(self, choice: PluginChoice, target: Target) -> dict[str, Any]:
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


def _reset(asked: str, images: int, own: int) -> str:
    """When a method with batches of `own` images is reset on a stream with batches of so many `images`.

    Methods that join batches are reset after as many images as others, or at the next border of their own.
    """
    batches = batches_between(asked)
    if batches == math.inf:
        return asked
    every = math.ceil(batches * images / own) if asked != "batch" else 1
    return "batch" if every == 1 else f"every {every}"


def identity_of(group: str, use: str, plugin: Plugin, fingerprint: str = "") -> PluginIdentity:
    """A plugin's identity; its fields have been converted to their types, so that 16 and 16.0 are equal."""
    params = dataclasses.asdict(plugin)  # type: ignore[call-overload]
    return identify(group, use, params, plugin.version, fingerprint)
