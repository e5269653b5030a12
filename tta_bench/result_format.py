"""The format of a results folder: what manifests, descriptions, records and ledgers may hold.

A folder may come from anybody, so that everything in it is checked when it is read. `FORMAT` is the version
of the whole folder, and stands in its manifest. Fields that are not named here are kept as they are.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError
from typing_extensions import NotRequired, TypedDict

from tta_bench.plain_files import KEY

FORMAT = 2  # 1 had the description in the log, and other keys
LEDGER = "trials."  # before the key of a search in the name of its ledger
MOST_PROBLEMS = 5  # that are spelt out
CONFIG = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

Key = Annotated[str, StringConstraints(pattern=f"^{KEY.pattern}$")]
Count = Annotated[int, Field(ge=0, lt=2**53)]
Positive = Annotated[int, Field(ge=1, lt=2**53)]
Size = Annotated[int, Field(ge=1, le=10**9)]  # of a batch or a domain
Round = Annotated[int, Field(ge=1, le=10_000)]
Severity = Annotated[int, Field(ge=0, le=5)]
Seconds = Annotated[float, Field(ge=0)]


# -- records -----------------------------------------------------------------------------------------


class Result(TypedDict):
    """One domain of one round."""

    __pydantic_config__ = CONFIG  # type: ignore[misc]
    key: str
    status: Literal["ok"]
    code: str
    environment: str
    fingerprint: str
    round: Round
    corruption: str
    severity: Severity
    repeats: NotRequired[Round]
    images: Positive
    correct: Count
    correct_per_batch: list[Count]
    top5_correct: Count
    nonfinite_images: Count
    ece: Annotated[float, Field(ge=0, le=1 + 1e-6)]  # a sum of floats
    seconds: Seconds
    forward_images: Count
    backward_images: Count
    skipped_updates: Count
    skipped_reasons: NotRequired[dict[str, Count]]
    counters: NotRequired[dict[str, Count]]  # the method's own


class Ending(TypedDict):
    """A cell that could not run, or not go on."""

    __pydantic_config__ = CONFIG  # type: ignore[misc]
    key: str
    status: Literal["failed", "unsupported"]
    code: str
    reason: str
    round: NotRequired[Round]
    corruption: NotRequired[str]
    severity: NotRequired[Severity]


def _counted(record: Result) -> Result:
    if max(record["correct"], record["top5_correct"], record["nonfinite_images"]) > record["images"]:
        raise ValueError("more images are counted than there are")
    return record


DomainRecord = Annotated[Annotated[Result, AfterValidator(_counted)] | Ending, Field(discriminator="status")]
RECORD: TypeAdapter[Any] = TypeAdapter(DomainRecord)


# -- the ledger of a search ----------------------------------------------------------------------------


class Begin(TypedDict):
    """A trial starts."""

    __pydantic_config__ = CONFIG  # type: ignore[misc]
    key: str
    event: Literal["begin"]
    number: Count
    params: dict[str, Any]
    code: str


class Step(TypedDict):
    """A trial has been through a domain."""

    __pydantic_config__ = CONFIG  # type: ignore[misc]
    key: str
    event: Literal["step"]
    number: Count
    step: Count
    accuracy: Annotated[float, Field(ge=0, le=100)]
    spent: Count


class End(TypedDict):
    """A trial is over."""

    __pydantic_config__ = CONFIG  # type: ignore[misc]
    key: str
    event: Literal["end"]
    number: Count
    how: Literal["complete", "early", "failed", "unsupported"]
    reason: str


EVENT: TypeAdapter[Any] = TypeAdapter(Annotated[Begin | Step | End, Field(discriminator="event")])


def line_format(key: str) -> TypeAdapter[Any]:
    """What the lines of a log are."""
    return EVENT if key.startswith(LEDGER) else RECORD


# -- cells ---------------------------------------------------------------------------------------------


class Versions(TypedDict):
    """Versions of packages, by name."""

    __pydantic_config__ = CONFIG  # type: ignore[misc]
    torch: str
    timm: str


class Environment(TypedDict):
    """Where records were made."""

    __pydantic_config__ = CONFIG  # type: ignore[misc]
    versions: Versions
    device: str
    cpu: str
    host: str


class CellDescription(TypedDict):
    """What is true of a whole cell."""

    __pydantic_config__ = CONFIG  # type: ignore[misc]
    key: str
    environments: dict[str, Environment]
    code: NotRequired[dict[str, str]]
    weights_sha256: NotRequired[str]
    data_note: NotRequired[str]
    memory_bytes: NotRequired[Count]
    packed_bytes: NotRequired[Count]
    measured_bytes: NotRequired[Count]


class PluginEntry(TypedDict):
    """An identity, as `PluginIdentity` is written."""

    __pydantic_config__ = CONFIG  # type: ignore[misc]
    group: str
    use: str
    params: dict[str, Any]
    version: str
    fingerprint: str
    code: str


class LabelEntry(TypedDict):
    """Names and places of a row."""

    __pydantic_config__ = CONFIG  # type: ignore[misc]
    model: str
    quantizer: str
    method: str
    order: Annotated[list[Count], Field(min_length=3, max_length=3)]
    stream: NotRequired[str]


class CellEntry(TypedDict):
    """A cell of the last run."""

    __pydantic_config__ = CONFIG  # type: ignore[misc]
    key: Key
    code: str
    labels: LabelEntry
    data: PluginEntry
    model: PluginEntry
    quantizer: PluginEntry
    method: PluginEntry
    corruptions: list[PluginEntry]
    domains: Annotated[list[tuple[str, Severity]], Field(min_length=1, max_length=1000)]
    rounds: Round
    batch_size: Size
    limit: Size | None
    order: str
    reset: Literal["never", "domain"]
    seed: Count
    threads: Annotated[int, Field(ge=1, le=1024)]  # `verify` takes as many
    bits: str
    records_expected: Positive
    variant: str
    backprop: bool


def _expected(cell: CellEntry) -> CellEntry:
    if cell["records_expected"] != cell["rounds"] * len(cell["domains"]):
        raise ValueError("records_expected is not rounds times domains")
    return cell


class Manifest(TypedDict):
    """The cells of the last run."""

    __pydantic_config__ = CONFIG  # type: ignore[misc]
    format: Literal[2]
    version: str
    cells: list[Annotated[CellEntry, AfterValidator(_expected)]]
    earlier: NotRequired[list[Annotated[CellEntry, AfterValidator(_expected)]]]  # with records, of other runs


class CheckpointHeader(TypedDict):
    """Where a cell is at rest, and the records that its log may not have."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)  # type: ignore[misc]
    key: str
    place: Count
    batch: Count
    unlogged: list[DomainRecord]


MANIFEST_FORMAT: TypeAdapter[Any] = TypeAdapter(Manifest)
DESCRIPTION: TypeAdapter[Any] = TypeAdapter(CellDescription)
HEADER: TypeAdapter[Any] = TypeAdapter(CheckpointHeader)


def problems(error: ValidationError) -> list[str]:
    """What is wrong with a file, each with its place in it."""
    found = []
    for each in error.errors(include_url=False, include_input=False, include_context=False):
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in each["loc"])
        found.append(": ".join(filter(None, [place.removeprefix("."), each["msg"]])))
    more = len(found) - MOST_PROBLEMS
    return found[:MOST_PROBLEMS] + ([f"and {more} more problems"] if more > 0 else [])
