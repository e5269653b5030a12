"""The structure of a benchmark file, checked before any plugin is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    StringConstraints,
)
from pydantic_core import CoreSchema

from tta_bench.config.stream_values import DomainOrder, Reset, with_all_orders
from tta_bench.plugins.field_docs import field_docs

MAX_GRID_VALUES = 1000  # a longer list is a mistake: its grid would run for years


def _printable(value: str) -> str:
    if not value.isprintable():  # a line break would break tables, an escape sequence the terminal
        raise ValueError("it contains characters that cannot be printed")
    return value


Text = Annotated[str, StringConstraints(min_length=1, max_length=100), AfterValidator(_printable)]


class Documented(BaseModel):
    """In the JSON schema, the comment of each field is its description."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        found = handler(schema)
        properties = handler.resolve_ref_schema(found)["properties"]
        for name, text in field_docs(cls).items():
            if name in cls.model_fields:
                properties[name]["description"] = text
        return found


@dataclass(frozen=True)
class NamesOf:
    """Annotation of a text that names a plugin of a group, or of an entry with its parameters.

    It matters only in the JSON schema, whose author puts the plugins in its place (`json_schema`).
    """

    group: str

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"plugins": self.group, "base": handler.resolve_ref_schema(handler(schema))}


class Strict(Documented):
    """Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PluginEntry(Documented):
    """A plugin by name, with its parameters beside `use`; a plain string is a plugin without parameters."""

    model_config = ConfigDict(extra="allow", frozen=True)

    use: Text  # name of the plugin; NAME:VALUE also sets its first parameter
    name: Text | None = None  # name of its rows in tables

    @property
    def params(self) -> dict[str, Any]:
        """The plugin's parameters."""
        return dict(self.model_extra or {})


class MethodEntry(PluginEntry):
    """A method, which may have its own reset protocol."""

    # When the model is reset; default: as in `stream`.
    reset: Reset | None = None


def _as_mapping(value: Any) -> Any:
    return {"use": value} if isinstance(value, str) else value


def as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _no_truth(value: Any) -> Any:
    if isinstance(value, bool):  # Python counts them as 0 and 1
        raise ValueError("it must be a number, not true or false")
    return value


Whole = Annotated[int, BeforeValidator(_no_truth)]
Number = Annotated[float, BeforeValidator(_no_truth)]
Device = Literal["auto", "cpu", "cuda"]
AnyEntry = Annotated[PluginEntry, BeforeValidator(_as_mapping)]
AnyData = Annotated[AnyEntry, NamesOf("data")]
AnyModel = Annotated[AnyEntry, NamesOf("models")]
AnyQuantizer = Annotated[AnyEntry, NamesOf("quantizers")]
AnyScenario = Annotated[AnyEntry, NamesOf("streams")]
AnyMethod = Annotated[MethodEntry, BeforeValidator(_as_mapping), NamesOf("methods")]
Axis = Field(min_length=1, max_length=MAX_GRID_VALUES)
# It becomes a folder name, so it must not be able to leave the results folder.
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
Seed = Annotated[Whole, Field(ge=0, lt=2**32)]  # the range that every random generator accepts
Corruption = Annotated[Text, NamesOf("corruptions")]
Corruptions = Annotated[list[Corruption], BeforeValidator(as_list), Field(min_length=1, max_length=200)]
Severity = Annotated[Whole, Field(ge=1, le=5)]
BatchSize = Annotated[Whole, Field(ge=1, le=65_536)]
DomainOrders = Annotated[list[DomainOrder], BeforeValidator(with_all_orders), BeforeValidator(as_list), Axis]


class StreamSection(Strict):
    """Rounds × domains × batches; several scenarios, severities, batch sizes or orders are axes."""

    # Domains: names of corruptions, of sets of them, `clean`, or domains of the data.
    corruptions: Corruptions = ["imagenet-c-15"]
    severity: Annotated[list[Severity], BeforeValidator(as_list), Axis] = [5]  # one severity, or several
    rounds: Whole = Field(10, ge=1, le=10_000)  # how often the stream passes through all domains
    # One batch size, or several.
    batch_size: Annotated[list[BatchSize], BeforeValidator(as_list), Axis] = [64]
    limit: Whole | None = Field(None, ge=1, le=1_000_000_000)  # images per domain; default: all
    # Order of the images of a domain.
    order: Literal["shuffled", "reshuffled", "sequential", "aligned"] = "shuffled"
    reset: Reset = "never"  # when methods are reset: at each domain, at each batch, every N batches
    # Adapt to every such batch of a segment; the others are only predicted.
    adapt_every: Whole = Field(1, ge=1, le=10**9)
    window: Whole = Field(1, ge=1, le=4096)  # images to adapt to at once, if batches have one image
    # How images and domains follow each other: one scenario, or several.
    scenario: Annotated[list[AnyScenario], BeforeValidator(as_list), Axis] = [PluginEntry(use="continual")]
    domain_order: DomainOrders = ["file"]  # order of the domains, or several orders
    straddle: bool = False  # batches cross the borders between the segments of a round
    # A protocol of the literature, whose values are defaults, or several; the last one takes precedence.
    protocol: Annotated[list[Text], BeforeValidator(as_list), Axis] | None = None


class RunSection(Strict):
    """How to run; only `threads` and `device` may change results, in their last digits."""

    engine: Literal["ray", "local"] = "ray"  # worker processes over Ray, or this process alone
    # Worker processes; auto: as many as there are cores.
    workers: Literal["auto"] | Annotated[Whole, Field(ge=1, le=4096)] = "auto"
    # Of each cell; part of its key, because sums on two threads are rounded differently.
    threads: Whole = Field(1, ge=1, le=1024)
    device: Device = "auto"  # auto: GPUs on nodes that have some, else cores
    gpus: Number = Field(1.0, gt=0, le=1)  # share of a GPU per worker: with 0.25, four workers share one
    checkpoint_minutes: Number = Field(5.0, ge=0, allow_inf_nan=False)  # within a domain; also at its end
    cell_minutes: Number | None = Field(None, gt=0, le=1e6)  # a cell that takes longer has failed
    share: bool = True  # share passes between methods and rounds; numbers are the same without


class TuneSection(Strict):
    """How `tta-bench tune` searches; other settings come from `stream`. `run` ignores it."""

    corruptions: Corruptions = ["held-out-4"]  # domains of the search, which the benchmark must not contain
    seed: Seed = 7  # of the search, which the benchmark must not contain
    budget: Whole = Field(200_000, ge=1, le=10**15)  # forward passes in images, for each method on each model
    rounds: Whole = Field(1, ge=1, le=10_000)  # how often the stream passes through all domains
    limit: Whole | None = Field(None, ge=1, le=1_000_000_000)  # images per domain; default: all


class Filter(Strict):
    """Patterns on a cell (with `*` and `?`); all given patterns must match."""

    model: Text | None = None  # name of the model, or of its rows
    quantizer: Text | None = None  # name of the quantizer, or of its rows
    method: Text | None = None  # name of the method, or of its rows
    bits: Text | None = None  # such as W8A8
    seed: Whole | None = None  # of the cell


class PresetEntry(Strict):
    """Default parameters for the methods and models that it matches."""

    method: Text = "*"  # name of the method
    model: Text = "*"  # name of the model's rows
    family: Text = "*"  # family of the model
    bits: Text = "*"  # such as W4*
    set: dict[str, Any]  # parameters and their values


class BenchmarkFile(Strict):
    """A whole benchmark file."""

    name: Name  # names the folder of the results
    data: AnyData  # clean and test images
    models: list[AnyModel] = Axis  # networks with their weights
    # How networks are quantised; fp32: not at all.
    quantizers: list[AnyQuantizer] = Field(
        [PluginEntry(use="fp32")], min_length=1, max_length=MAX_GRID_VALUES
    )
    methods: list[AnyMethod] = Axis  # test-time adaptation methods
    stream: StreamSection = Field(default_factory=StreamSection)  # the order in which test images arrive
    # Of the stream and of random methods; each makes its own cells.
    seeds: list[Seed] = Field([2020], min_length=1, max_length=MAX_GRID_VALUES)
    # How to run; it changes no result but for the last digits.
    run: RunSection = Field(default_factory=RunSection)
    # Keep only cells that match one of these filters.
    include: list[Filter] = Field([], max_length=MAX_GRID_VALUES)
    # Leave out cells that match one of these filters.
    exclude: list[Filter] = Field([], max_length=MAX_GRID_VALUES)
    # Default parameters of methods, for some models or bit-widths.
    presets: list[PresetEntry] = Field([], max_length=MAX_GRID_VALUES)
    tune: TuneSection | None = None  # how `tta-bench tune` searches for parameters

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)
