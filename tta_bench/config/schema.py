"""The structure of a benchmark file, checked before any plugin is loaded."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

MAX_GRID_VALUES = 1000  # a longer list is a mistake: its grid would run for years


def _printable(value: str) -> str:
    if not value.isprintable():  # a line break would break tables, an escape sequence the terminal
        raise ValueError("it contains characters that cannot be printed")
    return value


Text = Annotated[str, StringConstraints(min_length=1, max_length=100), AfterValidator(_printable)]


class Strict(BaseModel):
    """Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PluginEntry(BaseModel):
    """A plugin by name, with its parameters beside `use`; a plain string is a plugin without parameters."""

    model_config = ConfigDict(extra="allow", frozen=True)

    use: Text
    name: Text | None = None

    @property
    def params(self) -> dict[str, Any]:
        """The plugin's parameters."""
        return dict(self.model_extra or {})


class MethodEntry(PluginEntry):
    """A method, which may have its own reset protocol."""

    reset: Literal["never", "domain"] | None = None


def _as_mapping(value: Any) -> Any:
    return {"use": value} if isinstance(value, str) else value


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _no_truth(value: Any) -> Any:
    if isinstance(value, bool):  # Python counts them as 0 and 1
        raise ValueError("it must be a number, not true or false")
    return value


Whole = Annotated[int, BeforeValidator(_no_truth)]
Number = Annotated[float, BeforeValidator(_no_truth)]
Device = Literal["auto", "cpu", "cuda"]
AnyEntry = Annotated[PluginEntry, BeforeValidator(_as_mapping)]
AnyMethod = Annotated[MethodEntry, BeforeValidator(_as_mapping)]
Axis = Field(min_length=1, max_length=MAX_GRID_VALUES)
# It becomes a folder name, so it must not be able to leave the results folder.
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
Seed = Annotated[Whole, Field(ge=0, lt=2**32)]  # the range that every random generator accepts
Corruptions = Annotated[list[Text], BeforeValidator(_as_list), Field(min_length=1, max_length=200)]
Severity = Annotated[Whole, Field(ge=1, le=5)]
BatchSize = Annotated[Whole, Field(ge=1, le=65_536)]


class CottaOrder(Strict):
    """One of the ten orders of ImageNet-C's 15 corruptions on which CoTTA reports."""

    cotta: Whole = Field(ge=0, le=9)


class StreamSection(Strict):
    """Rounds × domains × batches; each of several scenarios, severities or batch sizes has its own cells."""

    corruptions: Corruptions = ["imagenet-c-15"]
    severity: Annotated[list[Severity], BeforeValidator(_as_list), Axis] = [5]
    rounds: Whole = Field(10, ge=1, le=10_000)
    batch_size: Annotated[list[BatchSize], BeforeValidator(_as_list), Axis] = [64]
    limit: Whole | None = Field(None, ge=1, le=1_000_000_000)
    order: Literal["shuffled", "reshuffled", "sequential", "aligned"] = "shuffled"
    reset: Literal["never", "domain"] = "never"
    scenario: Annotated[list[AnyEntry], BeforeValidator(_as_list), Axis] = [PluginEntry(use="continual")]
    domain_order: Literal["file", "per-seed", "per-round"] | CottaOrder = "file"
    straddle: bool = False  # batches cross the borders between the segments of a round


class RunSection(Strict):
    """How to run; only `threads` and `device` may change results, in their last digits."""

    engine: Literal["ray", "local"] = "ray"
    workers: Literal["auto"] | Annotated[Whole, Field(ge=1, le=4096)] = "auto"
    threads: Whole = Field(1, ge=1, le=1024)
    device: Device = "auto"  # auto: GPUs on nodes that have some, else cores
    gpus: Number = Field(1.0, gt=0, le=1)  # share of a GPU per worker: with 0.25, four workers share one
    checkpoint_minutes: Number = Field(5.0, ge=0, allow_inf_nan=False)  # within a domain; also at its end
    cell_minutes: Number | None = Field(None, gt=0, le=1e6)  # a cell that takes longer has failed
    share: bool = True  # share passes between methods and rounds; numbers are the same without


class TuneSection(Strict):
    """How `tta-bench tune` searches; other settings come from `stream`. `run` ignores it."""

    corruptions: Corruptions = ["held-out-4"]
    seed: Seed = 7
    budget: Whole = Field(200_000, ge=1, le=10**15)  # forward passes in images, for each method on each model
    rounds: Whole = Field(1, ge=1, le=10_000)
    limit: Whole | None = Field(None, ge=1, le=1_000_000_000)


class Filter(Strict):
    """Patterns on a cell (with `*` and `?`); all given patterns must match."""

    model: Text | None = None
    quantizer: Text | None = None
    method: Text | None = None
    bits: Text | None = None
    seed: Whole | None = None


class PresetEntry(Strict):
    """Default parameters for the methods and models that it matches."""

    method: Text = "*"
    model: Text = "*"
    family: Text = "*"
    bits: Text = "*"
    set: dict[str, Any]


class BenchmarkFile(Strict):
    """A whole benchmark file."""

    name: Name
    data: AnyEntry
    models: list[AnyEntry] = Axis
    quantizers: list[AnyEntry] = Field([PluginEntry(use="fp32")], min_length=1, max_length=MAX_GRID_VALUES)
    methods: list[AnyMethod] = Axis
    stream: StreamSection = Field(default_factory=StreamSection)
    seeds: list[Seed] = Field([2020], min_length=1, max_length=MAX_GRID_VALUES)
    run: RunSection = Field(default_factory=RunSection)
    include: list[Filter] = Field([], max_length=MAX_GRID_VALUES)
    exclude: list[Filter] = Field([], max_length=MAX_GRID_VALUES)
    presets: list[PresetEntry] = Field([], max_length=MAX_GRID_VALUES)
    tune: TuneSection | None = None

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)
