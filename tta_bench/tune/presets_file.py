"""presets.yaml: the parameters that tuning found, the setting, and the cost; a seal shows later changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, JsonValue, ValidationError

from tta_bench.config import Benchmark, Tuned
from tta_bench.config.parameters import check_params
from tta_bench.config.schema import Seed, Strict, Text, Whole
from tta_bench.config.yaml import read_yaml
from tta_bench.errors import ConfigError, Problem, UserError
from tta_bench.files import write_atomically, write_errors
from tta_bench.plugins import registry
from tta_bench.tune.ledger import Ledger

HEAD = """# Written by `tta-bench tune`, for `tta-bench run FILE --presets THIS`; values in FILE override it.
# The seal at the end shows whether the file was changed; to change a value, set it in FILE.
"""
FORMAT = 1
Percent = Annotated[float, Field(ge=0, le=100)]


class TunedOn(Strict):
    """The stream and the budget of the search."""

    data: Text
    corruptions: list[Text]
    severity: Whole
    rounds: Whole
    limit: Whole | None
    batch_size: Whole
    seed: Seed
    budget: Whole  # forward passes of images for each preset; a backward pass counts as two


class Preset(Strict):
    """The parameters found for one method on one quantised model."""

    method: Text
    given: dict[str, JsonValue]
    model: Text
    quantizer: Text
    bits: Text
    set: dict[str, JsonValue]
    accuracy: Percent  # on the held-out corruptions
    untuned: Percent
    trials: Whole
    complete: Whole
    spent: Whole


class PresetsFile(Strict):
    """The whole file."""

    format: Literal[1]
    benchmark: Text
    tuned_on: TunedOn
    presets: list[Preset] = Field(max_length=100_000)
    seal: str


def content(name: str, budget: int, ledgers: Sequence[Ledger]) -> dict[str, Any]:
    """The content of the file, with its seal."""
    cell = ledgers[0].goal.cell
    body = {
        "format": FORMAT,
        "benchmark": name,
        "tuned_on": {
            "data": cell.data.use,
            "corruptions": [corruption for corruption, _ in cell.domains],
            "severity": max(severity for _, severity in cell.domains),
            "rounds": cell.rounds,
            "limit": cell.limit,
            "batch_size": cell.batch_size,
            "seed": cell.seed,
            "budget": budget,
        },
        "presets": [preset for ledger in ledgers if (preset := _preset(ledger)) is not None],
    }
    return body | {"seal": seal(body)}


def _preset(ledger: Ledger) -> dict[str, Any] | None:
    """The preset of the best complete trial; None if no trial is complete."""
    best = ledger.best()
    if best is None:
        return None
    goal, trials, untuned = ledger.goal, ledger.trials.values(), ledger.trials[0]
    cell = goal.cell
    return {
        "method": cell.method.use,
        "given": goal.given,
        "model": goal.target,
        "quantizer": cell.quantizer.use,
        "bits": cell.bits,
        "set": best.params,
        "accuracy": round(best.score(), 4),
        "untuned": round((untuned if untuned.ended == "complete" else best).score(), 4),
        "trials": len(trials),
        "complete": sum(trial.ended == "complete" for trial in trials),
        "spent": ledger.spent,
    }


def seal(body: dict[str, Any]) -> str:
    """SHA-256 of everything except the seal."""
    unsealed = {name: value for name, value in body.items() if name != "seal"}
    return hashlib.sha256(json.dumps(unsealed, sort_keys=True).encode()).hexdigest()


def write(path: Path, body: dict[str, Any]) -> None:
    """Write the file atomically."""
    text = HEAD + yaml.safe_dump(body, sort_keys=False, allow_unicode=True, default_flow_style=None)
    with write_errors(path, "Choose another --output."):
        write_atomically(path, text.encode())


def applied(benchmark: Benchmark, path: Path) -> Benchmark:
    """The benchmark with the presets of a file; raises an error if it uses the seed of the tuning."""
    body = _read(path)
    problems = [
        Problem(f"tuned_on.seed: {seed}", "is among the seeds of the benchmark. Run it with other seeds.")
        for seed in benchmark.seeds
        if seed == body.tuned_on.seed
    ]
    tuned = []
    for i, preset in enumerate(body.presets):
        place = f"presets[{i}]"
        try:
            cls = registry.load("methods", preset.method)
        except registry.UnknownPlugin as error:
            problems.append(Problem(f"{place}.method", str(error)))
            continue
        checked, wrong = check_params(cls, preset.set, f"{place}.set")
        given, also = check_params(cls, preset.given, f"{place}.given")
        problems += wrong + also
        tuned.append(Tuned(preset.method, given, preset.model, preset.quantizer, preset.bits, checked))
    if problems:
        raise ConfigError(str(path), problems)
    return replace(benchmark, tuned=tuple(tuned))


def _read(path: Path) -> PresetsFile:
    """The content of the file; raises an error if it is not a presets file or was changed."""
    raw = read_yaml(path)
    if "seal" in raw and raw.get("format") != FORMAT:
        raise UserError(f"{path}: was written by another version. Write it again with `tta-bench tune`.")
    try:
        body = PresetsFile.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        text = f"{place}: {first['msg']}. Is it a presets file? `tta-bench tune` writes one."
        raise UserError(f"{path}: {text}") from None
    if seal(raw) != body.seal:
        raise UserError(
            f"{path}: was changed since `tta-bench tune` wrote it, so its numbers may be wrong. "
            "Write it again with the same tune command, or set the values in the benchmark file."
        )
    return body
