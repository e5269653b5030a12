"""The shape of a benchmark file, before any plugin is looked at."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

MAX_GRID_VALUES = 1000  # a longer list is a mistake, and would be a grid of years


def _printable(value: str) -> str:
    if not value.isprintable():  # a line break tears a table, an escape sequence repaints the terminal
        raise ValueError("it holds characters that cannot be printed")
    return value


Text = Annotated[str, StringConstraints(min_length=1, max_length=100), AfterValidator(_printable)]


class Strict(BaseModel):
    """Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Entry(BaseModel):
    """A plugin by name, with parameters beside `use`; a plain string is a plugin without any."""

    model_config = ConfigDict(extra="allow", frozen=True)

    use: Text
    name: Text | None = None

    @property
    def params(self) -> dict[str, Any]:
        """The plugin's own keys."""
        return dict(self.model_extra or {})


class MethodEntry(Entry):
    """A method may choose its own reset protocol."""

    reset: Literal["never", "domain"] | None = None


def _as_mapping(value: Any) -> Any:
    return {"use": value} if isinstance(value, str) else value


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _no_truth(value: Any) -> Any:
    if isinstance(value, bool):  # which Python takes for 0 and 1
        raise ValueError("a number is wanted, not a truth value")
    return value


Whole = Annotated[int, BeforeValidator(_no_truth)]
Number = Annotated[float, BeforeValidator(_no_truth)]
Device = Literal["auto", "cpu", "cuda"]
AnyEntry = Annotated[Entry, BeforeValidator(_as_mapping)]
AnyMethod = Annotated[MethodEntry, BeforeValidator(_as_mapping)]
Axis = Field(min_length=1, max_length=MAX_GRID_VALUES)
# Becomes a folder name: nothing that could climb out of the results folder.
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
Seed = Annotated[Whole, Field(ge=0, lt=2**32)]  # what every generator takes
Corruptions = Annotated[list[Text], BeforeValidator(_as_list), Field(min_length=1, max_length=200)]
Severity = Annotated[Whole, Field(ge=1, le=5)]
BatchSize = Annotated[Whole, Field(ge=1, le=65_536)]


class StreamSection(Strict):
    """Rounds × corruptions × batches; several severities or batch sizes make cells of their own for each."""

    corruptions: Corruptions = ["imagenet-c-15"]
    severity: Annotated[list[Severity], BeforeValidator(_as_list), Axis] = [5]
    rounds: Whole = Field(10, ge=1, le=10_000)
    batch_size: Annotated[list[BatchSize], BeforeValidator(_as_list), Axis] = [64]
    limit: Whole | None = Field(None, ge=1, le=1_000_000_000)
    order: Literal["shuffled", "reshuffled", "sequential"] = "shuffled"
    reset: Literal["never", "domain"] = "never"


class RunSection(Strict):
    """How to run; nothing here may change a number, but `threads` and `device` round sums otherwise."""

    engine: Literal["ray", "local"] = "ray"
    workers: Literal["auto"] | Annotated[Whole, Field(ge=1, le=4096)] = "auto"
    threads: Whole = Field(1, ge=1, le=1024)
    device: Device = "auto"  # auto: GPUs on nodes that have some, else cores
    gpus: Number = Field(1.0, gt=0, le=1)  # what a worker takes of a GPU: 0.25 lets four share one
    checkpoint_minutes: Number = Field(5.0, ge=0, allow_inf_nan=False)  # inside a domain; always at its end
    cell_minutes: Number | None = Field(None, gt=0, le=1e6)  # a cell that takes longer has failed
    share: bool = True  # compute once what methods and rounds have in common; off, to check that


class TuneSection(Strict):
    """How `tta-bench tune` searches; all else is as the stream has it. `run` does not look at it."""

    corruptions: Corruptions = ["held-out-4"]
    seed: Seed = 7
    budget: Whole = Field(200_000, ge=1, le=10**15)  # images forward, for each method on each model
    rounds: Whole = Field(1, ge=1, le=10_000)
    limit: Whole | None = Field(None, ge=1, le=1_000_000_000)


class Filter(Strict):
    """Patterns (`*` and `?` work) on a cell; all that are given must match."""

    model: Text | None = None
    quantizer: Text | None = None
    method: Text | None = None
    bits: Text | None = None
    seed: Whole | None = None


class PresetEntry(Strict):
    """Default parameters for the methods and models it matches."""

    method: Text = "*"
    model: Text = "*"
    family: Text = "*"
    bits: Text = "*"
    set: dict[str, Any]


class BenchmarkFile(Strict):
    """The whole file."""

    name: Name
    data: AnyEntry
    models: list[AnyEntry] = Axis
    quantizers: list[AnyEntry] = Field([Entry(use="fp32")], min_length=1, max_length=MAX_GRID_VALUES)
    methods: list[AnyMethod] = Axis
    stream: StreamSection = Field(default_factory=StreamSection)
    seeds: list[Seed] = Field([2020], min_length=1, max_length=MAX_GRID_VALUES)
    run: RunSection = Field(default_factory=RunSection)
    include: list[Filter] = Field([], max_length=MAX_GRID_VALUES)
    exclude: list[Filter] = Field([], max_length=MAX_GRID_VALUES)
    presets: list[PresetEntry] = Field([], max_length=MAX_GRID_VALUES)
    tune: TuneSection | None = None

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)
