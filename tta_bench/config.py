"""YAML → Benchmark. Every complaint about a benchmark file is raised from here, all at once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from tta_bench import registry
from tta_bench.corruptions.sets import SETS
from tta_bench.errors import ConfigError, Problem, UserError, shown
from tta_bench.parameters import MAX_VARIANTS, check_params, spelled_out, unroll
from tta_bench.schema import (
    BenchmarkFile,
    Entry,
    Filter,
    PresetEntry,
    RunSection,
    StreamSection,
    TuneSection,
)
from tta_bench.yaml_file import override_, read_yaml

_Section = TypeVar("_Section", StreamSection, TuneSection)
# pydantic puts the members of a union it tried into an error's path; they are not keys of the file
_UNION_MEMBER = re.compile(r"int|str|(function-|literal\[|constrained-|list\[).*")
ONE_OR_MORE = (("stream", "severity"), ("stream", "batch_size"))


@dataclass(frozen=True)
class Choice:
    """A plugin with the parameters that were given for it, and the name its rows carry."""

    use: str
    name: str
    params: dict[str, Any] = field(default_factory=dict)
    reset: str | None = None


@dataclass(frozen=True)
class Tuned:
    """Parameters that `tta-bench tune` has found for a method, with these given, on a quantised model."""

    method: str
    given: dict[str, Any]
    model: str
    quantizer: str
    bits: str
    set: dict[str, Any]

    def fits(self, method: Choice, target: Any, quantizer: str) -> bool:
        """Whether they are for such a row: what was given when tuning must be given again."""
        same = (self.method, self.model, self.quantizer, self.bits)
        again = self.given.items() <= method.params.items()
        return again and same == (method.use, target.model, quantizer, target.bits)


@dataclass(frozen=True)
class Benchmark:
    """A benchmark file, checked: every plugin exists and takes its parameters."""

    name: str
    data: Choice
    models: tuple[Choice, ...]
    quantizers: tuple[Choice, ...]
    methods: tuple[Choice, ...]
    stream: StreamSection
    seeds: tuple[int, ...]
    run: RunSection
    include: tuple[Filter, ...] = ()
    exclude: tuple[Filter, ...] = ()
    presets: tuple[PresetEntry, ...] = ()
    tune: TuneSection | None = None
    tuned: tuple[Tuned, ...] = ()  # of a presets file


def fetch(benchmark: Benchmark) -> None:
    """Download the weights of all models, before cells are named by their hashes."""
    for choice in benchmark.models:
        make(choice, "models").fetch()


def make(choice: Choice, group: str) -> Any:
    """The plugin of a choice."""
    return registry.load(group, choice.use)(**choice.params)


def make_data(choice: Choice, model: Any) -> Any:
    """Data as one model looks at it: what the file leaves open is the model's to say."""
    params = registry.load("data", choice.use).presets(model) | choice.params
    try:
        return make(replace(choice, params=params), "data")
    except ValueError as error:  # what the model wishes
        raise UserError(f"data {choice.use}, with presets: {error} Set it in the file.") from None


def load(path: str | Path, overrides: Sequence[str] = ()) -> Benchmark:
    """The checked benchmark of a file, after `path=value` overrides."""
    raw = read_yaml(path)
    for override in overrides:
        override_(raw, override)
    return parse(raw, str(path))


def parse(raw: dict[str, Any], file: str = "benchmark") -> Benchmark:
    """The checked benchmark of a mapping; raises ConfigError with all problems."""
    try:
        shaped = BenchmarkFile.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(file, [_shape_problem(e) for e in error.errors()]) from None
    problems: list[Problem] = []
    axes = {
        axis: _choices(axis, getattr(shaped, axis), problems) for axis in ("models", "quantizers", "methods")
    }
    data_problems: list[Problem] = []
    data = _choices("data", [shaped.data], data_problems)
    own = () if data_problems else make(data[0], "data").own_domains()
    problems += data_problems
    stream = _resolve_corruptions(shaped.stream, own, problems, "stream")
    tune = None if shaped.tune is None else _resolve_corruptions(shaped.tune, own, problems, "tune")
    problems += _repeated_names(axes)
    if not problems:
        problems += _mismatches(data[0], axes["models"])
    lists = {
        "seeds": shaped.seeds,
        "stream.severity": stream.severity,
        "stream.batch_size": stream.batch_size,
    }
    problems += [
        Problem(f"{name}[{i}]", "given twice. Remove one.")
        for name, values in lists.items()
        for i, value in enumerate(values)
        if value in values[:i]
    ]
    if problems:
        raise ConfigError(file, problems)
    return Benchmark(
        name=shaped.name,
        data=data[0],
        models=tuple(axes["models"]),
        quantizers=tuple(axes["quantizers"]),
        methods=tuple(axes["methods"]),
        stream=stream,
        seeds=tuple(shaped.seeds),
        run=shaped.run,
        include=tuple(shaped.include),
        exclude=tuple(shaped.exclude),
        presets=tuple(shaped.presets),
        tune=tune,
    )


# -- one axis --------------------------------------------------------------------------------------


def _choices(axis: str, entries: Sequence[Entry], problems: list[Problem]) -> list[Choice]:
    """All choices of an axis, sweeps unrolled; what is wrong goes to `problems`."""
    found: list[Choice] = []
    for i, entry in enumerate(entries):
        path = axis if axis == "data" else f"{axis}[{i}]"
        try:
            use, first = spelled_out(axis, entry.use)
        except registry.UnknownPlugin as error:
            problems.append(Problem(f"{path}.use" if entry.params else path, str(error)))
            continue
        cls = registry.load(axis, use)
        variants = unroll(cls, first | entry.params)
        if not variants:
            problems.append(Problem(path, "a list of no values leaves nothing to run. Give it a value."))
        if len(found) + len(variants) > MAX_VARIANTS:
            text = f"sweeps make more than {MAX_VARIANTS} entries. Sweep over fewer values."
            problems.append(Problem(path, text))
            return found
        for params, label in variants:
            checked, wrong = check_params(cls, params, path)
            problems += [w for w in wrong if w not in problems]
            title = entry.name or ("" if wrong else cls(**checked).title()) or use
            found.append(Choice(use, title + label, checked, getattr(entry, "reset", None)))
    return found


# -- across axes -----------------------------------------------------------------------------------


def _resolve_corruptions(
    stream: _Section, own: Sequence[str], problems: list[Problem], name: str
) -> _Section:
    """Named sets spelt out; `own` are the names of the data's own domains."""
    known: list[str] = [*own, *registry.names("corruptions")]
    names: list[str] = []
    for i, item in enumerate(stream.corruptions):
        path = f"{name}.corruptions" + ("" if len(stream.corruptions) == 1 else f"[{i}]")
        if item not in SETS and item not in known and item != "clean":
            hint = registry.suggest(item, [*sorted(SETS), "clean", *known])
            problems.append(Problem(path, f'unknown corruption "{item}". {hint}'))
        for each in SETS.get(item, (item,)):
            if each in names:
                problems.append(Problem(path, f'"{each}" is given twice. Remove one.'))
            names.append(each)
    return stream.model_copy(update={"corruptions": names})


def _repeated_names(axes: dict[str, list[Choice]]) -> list[Problem]:
    problems = []
    for axis, choices in axes.items():
        for name, count in Counter(choice.name for choice in choices).items():
            if count > 1:
                text = f'{count} entries are called "{name}". Give each its own `name:`.'
                problems.append(Problem(axis, text))
    return problems


def _mismatches(data: Choice, models: Sequence[Choice]) -> list[Problem]:
    """Models that cannot look at these images."""
    problems = []
    for i, choice in enumerate(models):
        model = make(choice, "models")
        source = make_data(data, model)
        for fact, unit in (("num_classes", "classes"), ("input_size", "pixels a side")):
            mine, theirs = getattr(model, fact), getattr(source, fact)
            if theirs and mine != theirs:
                problems.append(
                    Problem(
                        f"models[{i}]",
                        f"{choice.name} has {mine} {unit}, and data {data.use} has {theirs}. "
                        "Choose a model and data that fit each other.",
                    )
                )
    return problems


# -- shape errors ----------------------------------------------------------------------------------


def _shape_problem(error: Any) -> Problem:
    """A pydantic error as place, problem, remedy."""
    path = ""
    for i, part in enumerate(error["loc"]):
        if isinstance(part, int) and error["loc"][:i] in ONE_OR_MORE and not part:
            continue  # a single value need not be written as a list
        if isinstance(part, int):
            path += f"[{part}]"
        elif not _UNION_MEMBER.fullmatch(str(part)):
            path += f".{part}" if path else str(part)
    kind = error["type"]
    if kind == "extra_forbidden":
        name = str(error["loc"][-1])
        known = _section_fields(error["loc"])
        hint = registry.suggest(name, known, "Fields")
        return Problem(path, f"unknown field. {hint}")
    if kind == "missing":
        return Problem(path, "is missing. Add it; see benchmark.yaml for an example.")
    if kind == "string_pattern_mismatch":
        text = "may hold letters, digits, dots, dashes and underscores only. Rename it."
        return Problem(path, text)
    return Problem(path, f"{shown(error['input'])} does not fit: {error['msg']}. Correct the value.")


def _section_fields(loc: Sequence[Any]) -> list[str]:
    sections: dict[str, Any] = {
        "stream": StreamSection,
        "run": RunSection,
        "include": Filter,
        "exclude": Filter,
        "presets": PresetEntry,
        "tune": TuneSection,
    }
    return list(sections.get(str(loc[0]), BenchmarkFile).model_fields)
