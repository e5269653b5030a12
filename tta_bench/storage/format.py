"""The format of a results folder: the fields of manifests, descriptions, records and ledgers.

A folder may come from anybody, so everything in it is checked when it is read. `FORMAT` is the version of the
whole folder; the manifest holds it. Fields that are not listed here are kept as they are.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError
from typing_extensions import NotRequired, TypedDict

from tta_bench.files import KEY

FORMAT = 3
READABLE = (2, 3)  # 1 had other keys; 2 had a line for each round, also where rounds repeat
LEDGER = "trials."  # prefix of a search's key in the name of its ledger
MOST = Field(min_length=1, max_length=10_000)  # rounds, or visits of a round
MOST_PROBLEMS = 5  # listed in a message
CONFIG = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

Key = Annotated[str, StringConstraints(pattern=f"^{KEY.pattern}$")]
Count = Annotated[int, Field(ge=0, lt=2**53)]
Positive = Annotated[int, Field(ge=1, lt=2**53)]
Size = Annotated[int, Field(ge=1, le=10**9)]  # of a batch or a domain
Round = Annotated[int, Field(ge=1, le=10_000)]
Severity = Annotated[int, Field(ge=0, le=5)]
VisitNumber = Annotated[int, Field(ge=1, le=1000)]
VisitPlace = tuple[str, Severity, VisitNumber]
Seconds = Annotated[float, Field(ge=0)]


class StoredDict(TypedDict):
    """Base of all mappings in a results folder."""

    __pydantic_config__ = CONFIG  # type: ignore[misc]


class WorkerRow(StoredDict):
    """What one worker of a run over Ray does at the moment."""

    node: str
    device: str
    work: str
    since: Seconds


# -- records -----------------------------------------------------------------------------------------


class DomainResult(StoredDict):
    """One domain of one round, or of all rounds that repeat one."""

    key: str
    status: Literal["ok"]
    code: str
    environment: str
    fingerprint: str
    round: NotRequired[Round]
    rounds: NotRequired[Annotated[list[Round], Field(min_length=2)]]  # not `round`: these are equal
    corruption: str
    severity: Severity
    visit: NotRequired[VisitNumber]  # where a round comes to the domain several times
    repeats: NotRequired[Round]
    uses_labels: NotRequired[Literal[True]]  # the stream is ordered by labels
    images: Positive
    correct: Count
    correct_per_batch: list[Count]
    images_per_batch: NotRequired[list[Count]]  # where batches hold several domains
    top5_correct: Count
    nonfinite_images: Count
    ece: Annotated[float, Field(ge=0, le=1 + 1e-6)]  # a sum of floats may exceed 1
    class_accuracy: NotRequired[Annotated[float, Field(ge=0, le=1 + 1e-6)]]  # mean over classes; since 0.3.0
    seconds: Seconds
    forward_images: Count
    backward_images: Count
    skipped_updates: Count
    skipped_reasons: NotRequired[dict[str, Count]]
    counters: NotRequired[dict[str, Count]]  # counted by the method


class CellFailure(StoredDict):
    """A cell that cannot run, or that failed on the way."""

    key: str
    status: Literal["failed", "unsupported"]
    code: str
    reason: str
    round: NotRequired[Round]
    corruption: NotRequired[str]
    severity: NotRequired[Severity]
    visit: NotRequired[VisitNumber]


def _consistent(record: DomainResult) -> DomainResult:
    rounds = record.get("rounds", [])
    if ("round" in record) == bool(rounds) or len(set(rounds)) < len(rounds):
        raise ValueError("a record has either one round or several different rounds")
    if max(record["correct"], record["top5_correct"], record["nonfinite_images"]) > record["images"]:
        raise ValueError("a count exceeds the number of images")
    return record


CheckedResult = Annotated[DomainResult, AfterValidator(_consistent)]
DomainRecord = Annotated[CheckedResult | CellFailure, Field(discriminator="status")]
RECORDS: TypeAdapter[Any] = TypeAdapter(list[DomainRecord])


# -- the ledger of a search ----------------------------------------------------------------------------


class TrialBegin(StoredDict):
    """A trial starts."""

    key: str
    event: Literal["begin"]
    number: Count
    params: dict[str, Any]
    code: str


class TrialStep(StoredDict):
    """A trial has finished a domain."""

    key: str
    event: Literal["step"]
    number: Count
    step: Count
    accuracy: Annotated[float, Field(ge=0, le=100)]
    spent: Count


class TrialEnd(StoredDict):
    """A trial has ended."""

    key: str
    event: Literal["end"]
    number: Count
    how: Literal["complete", "early", "failed", "unsupported"]
    reason: str


TrialEvent = Annotated[TrialBegin | TrialStep | TrialEnd, Field(discriminator="event")]
EVENTS: TypeAdapter[Any] = TypeAdapter(list[TrialEvent])


# -- cells ---------------------------------------------------------------------------------------------


class Versions(StoredDict):
    """Versions of packages, by name."""

    torch: str
    timm: str


class Environment(StoredDict):
    """Where records were computed."""

    versions: Versions
    device: str
    cpu: str
    host: str


class EngineFacts(StoredDict):
    """An integer engine, and how well it agreed with the simulation when it was loaded."""

    name: str
    images: Positive  # that both predicted
    same_top1: Count
    largest_difference: Annotated[float, Field(ge=0)]  # of any logit
    integer_sites: NotRequired[Count]  # sites in integers …
    expected_sites: NotRequired[Count]  # … among those that have to be
    version: NotRequired[str]  # of the engine's package, unless that is PyTorch


class CellDescription(StoredDict):
    """Facts about a whole cell."""

    key: str
    environments: dict[str, Environment]
    code: NotRequired[dict[str, str]]
    weights_sha256: NotRequired[str]
    data_note: NotRequired[str]
    engine: NotRequired[EngineFacts]
    memory_bytes: NotRequired[Count]
    packed_bytes: NotRequired[Count]
    measured_bytes: NotRequired[Count]
    model_resident_bytes: NotRequired[Count]  # main memory that the model added when it was loaded


class PluginRow(StoredDict):
    """A `PluginIdentity`."""

    group: str
    use: str
    params: dict[str, Any]
    version: str
    fingerprint: str
    code: str


class LabelsRow(StoredDict):
    """The names of a row, and its position in tables."""

    model: str
    quantizer: str
    method: str
    order: Annotated[list[Count], Field(min_length=3, max_length=3)]
    stream: NotRequired[str]


class CellRow(StoredDict):
    """A cell, as `grid.row_of` describes it."""

    key: Key
    code: str
    labels: LabelsRow
    data: PluginRow
    model: PluginRow
    quantizer: PluginRow
    method: PluginRow
    corruptions: list[PluginRow]
    domains: Annotated[list[tuple[str, Severity]], Field(min_length=1, max_length=1000)]
    rounds: Round
    batch_size: Size
    limit: Size | None
    order: str
    scenario: NotRequired[PluginRow]  # not for `continual`
    domain_order: NotRequired[str]
    straddle: NotRequired[bool]
    visits: NotRequired[Annotated[list[Annotated[list[VisitPlace], MOST]], MOST]]  # see `record.visits_of`
    adapt_every: NotRequired[Positive]
    window: NotRequired[Positive]
    reset: Annotated[str, StringConstraints(pattern=r"^(never|domain|batch|every [1-9]\d{0,9})$")]
    seed: Count
    threads: Annotated[int, Field(ge=1, le=1024)]  # `verify` starts as many
    bits: str
    records_expected: Positive
    variant: str
    backprop: bool


def _expected(cell: CellRow) -> CellRow:
    if "visits" not in cell:
        expected, what = cell["rounds"] * len(cell["domains"]), "rounds times domains"
    elif len(cell["visits"]) == 1:
        expected, what = cell["rounds"] * len(cell["visits"][0]), "rounds times visits"
    else:
        expected, what = sum(map(len, cell["visits"])), "the number of visits"
        if len(cell["visits"]) != cell["rounds"]:
            raise ValueError("visits are given neither for all rounds nor for each")
    if cell["records_expected"] != expected:
        raise ValueError(f"records_expected is not {what}")
    return cell


CheckedRow = Annotated[CellRow, AfterValidator(_expected)]


class Manifest(StoredDict):
    """The cells of the last run."""

    format: Literal[2, 3]
    version: str
    cells: list[CheckedRow]
    earlier: NotRequired[list[CheckedRow]]  # of previous runs, with records


class CheckpointHeader(TypedDict):
    """The position of a paused cell, and records that may not be in its file of records."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)  # type: ignore[misc]
    key: str
    place: Count
    batch: Count
    unlogged: list[DomainRecord]


MANIFEST_FORMAT: TypeAdapter[Any] = TypeAdapter(Manifest)
DESCRIPTIONS: TypeAdapter[Any] = TypeAdapter(list[CellDescription])
WORKERS: TypeAdapter[Any] = TypeAdapter(list[WorkerRow])
HEADER: TypeAdapter[Any] = TypeAdapter(CheckpointHeader)


def problems(error: ValidationError) -> list[str]:
    """The problems of a file, each with the field it concerns."""
    found = []
    for each in error.errors(include_url=False, include_input=False, include_context=False):
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in each["loc"])
        found.append(": ".join(filter(None, [place.removeprefix("."), each["msg"]])))
    more = len(found) - MOST_PROBLEMS
    return found[:MOST_PROBLEMS] + ([f"and {more} more problems"] if more > 0 else [])
