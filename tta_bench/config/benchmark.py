"""A checked benchmark file as data, and the plugins it names."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tta_bench.config.schema import Filter, PresetEntry, RunSection, StreamSection, TuneSection
from tta_bench.errors import UserError
from tta_bench.plugins import registry


@dataclass(frozen=True)
class PluginChoice:
    """A plugin with the parameters given for it, and the name of its rows in tables."""

    use: str
    name: str
    params: dict[str, Any] = field(default_factory=dict)
    reset: str | None = None


@dataclass(frozen=True)
class Tuned:
    """Parameters that `tta-bench tune` found for a method with parameters `given` on a quantised model."""

    method: str
    given: dict[str, Any]
    model: str
    quantizer: str
    bits: str
    set: dict[str, Any]

    def fits(self, method: PluginChoice, target: Any, quantizer: str) -> bool:
        """Whether they apply to a row: it must have the same model, bits and given parameters."""
        same = (self.method, self.model, self.quantizer, self.bits)
        again = self.given.items() <= method.params.items()
        return again and same == (method.use, target.model, quantizer, target.bits)


@dataclass(frozen=True, repr=False)
class Benchmark:
    """A checked benchmark file: every plugin exists and accepts its parameters."""

    name: str
    data: PluginChoice
    models: tuple[PluginChoice, ...]
    quantizers: tuple[PluginChoice, ...]
    methods: tuple[PluginChoice, ...]
    stream: StreamSection
    scenarios: tuple[PluginChoice, ...]
    seeds: tuple[int, ...]
    run: RunSection
    include: tuple[Filter, ...] = ()
    exclude: tuple[Filter, ...] = ()
    presets: tuple[PresetEntry, ...] = ()
    tune: TuneSection | None = None
    tuned: tuple[Tuned, ...] = ()  # from a presets file
    reduced: tuple[str, ...] = ()  # what `--micro` has changed in the stream

    @property
    def plugins(self) -> set[tuple[str, str]]:
        """Group and name of every plugin that it uses, other than domains that come with the data."""
        groups = {"models": self.models, "quantizers": self.quantizers, "methods": self.methods}
        groups |= {"data": (self.data,), "streams": self.scenarios}
        found = {(group, choice.use) for group, choices in groups.items() for choice in choices}
        known = registry.names("corruptions")
        return found | {("corruptions", name) for name in self.stream.corruptions if name in known}

    def __repr__(self) -> str:
        counts = {axis: len(getattr(self, axis)) for axis in ("models", "quantizers", "methods", "seeds")}
        sizes = (f"{n} {axis if n > 1 else axis.removesuffix('s')}" for axis, n in counts.items())
        return f"<Benchmark {self.name}: {' × '.join(sizes)} on {self.data.name}>"


def fetch(benchmark: Benchmark) -> None:
    """Download the weights of all models, before cells are named by their hashes."""
    for choice in benchmark.models:
        make(choice, "models").fetch()


def make(choice: PluginChoice, group: str) -> Any:
    """An instance of the chosen plugin."""
    return registry.load(group, choice.use)(**choice.params)


def make_data(choice: PluginChoice, model: Any) -> Any:
    """Data for one model: the model's presets fill in parameters that the file does not set."""
    params = registry.load("data", choice.use).presets(model) | choice.params
    try:
        return make(replace(choice, params=params), "data")
    except ValueError as error:  # the model's presets do not fit
        raise UserError(f"data {choice.use}, with presets: {error} Set it in the file.") from None
