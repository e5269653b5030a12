"""YAML → Benchmark. All problems of a benchmark file are reported from here, together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import ValidationError

from tta_bench.config.benchmark import Benchmark, PluginChoice, make, make_data
from tta_bench.config.parameters import MAX_VARIANTS, check_params, spelled_out, unroll
from tta_bench.config.protocols import with_protocol
from tta_bench.config.schema import BenchmarkFile, PluginEntry, StreamSection, Strict, TuneSection
from tta_bench.config.stream_values import batches_between, cotta_numbers
from tta_bench.config.yaml import override_, read_yaml
from tta_bench.corruptions.sets import SETS
from tta_bench.errors import ConfigError, Problem, shown, suggest
from tta_bench.plugins import registry
from tta_bench.streams.schedules.cotta_orders import cotta_problem

_Section = TypeVar("_Section", StreamSection, TuneSection)
# pydantic puts the members of a union it tried into an error's path; they are not keys of the file
_UNION_MEMBER = re.compile(r"int|str|(function-|literal\[|constrained-|list\[).*")
ONE_OR_MORE = tuple(
    ("stream", name) for name in ("severity", "batch_size", "scenario", "domain_order", "protocol")
)


def load(path: str | Path, overrides: Sequence[str] = ()) -> Benchmark:
    """The checked benchmark of a file, after `path=value` overrides."""
    raw = read_yaml(path)
    for override in overrides:
        override_(raw, override)
    return parse(raw, str(path))


def parse(raw: dict[str, Any], file: str = "benchmark") -> Benchmark:
    """The checked benchmark of a mapping; raises ConfigError with all problems."""
    try:
        shaped = BenchmarkFile.model_validate(with_protocol(raw, file))
    except ValidationError as error:
        raise ConfigError(file, [_shape_problem(e) for e in error.errors()]) from None
    problems: list[Problem] = []
    axes = {
        axis: _choices(axis, getattr(shaped, axis), problems, axis)
        for axis in ("models", "quantizers", "methods")
    }
    axes["scenarios"] = _choices("streams", shaped.stream.scenario, problems, "stream.scenario")
    before = len(problems)
    data = _choices("data", [shaped.data], problems, "data")
    own = make(data[0], "data").own_domains() if len(problems) == before else ()
    stream = _resolve_corruptions(shaped.stream, own, problems, "stream")
    tune = None if shaped.tune is None else _resolve_corruptions(shaped.tune, own, problems, "tune")
    problems += _repeated_names(axes) + _order_problems(stream)
    problems += [] if problems else _repeated_scenarios(axes["scenarios"])
    problems += _rate_problems(stream, [each.reset or stream.reset for each in axes["methods"]])
    if not problems:
        problems += _mismatches(data[0], axes["models"])
    lists: dict[str, Sequence[Any]] = {
        "seeds": shaped.seeds,
        "stream.severity": stream.severity,
        "stream.batch_size": stream.batch_size,
        "stream.domain_order": stream.domain_order,
    }
    problems += [
        Problem(f"{name}[{i}]", "given twice. Remove one.")
        for name, values in lists.items()
        for i, value in enumerate(values)
        if value in values[:i]
    ]
    if problems:
        raise ConfigError(file, problems)
    checked = {**dict(shaped), **axes, "data": data[0], "stream": stream, "tune": tune}
    frozen: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in checked.items()}
    return Benchmark(**frozen)


# -- one axis --------------------------------------------------------------------------------------


def _choices(
    group: str, entries: Sequence[PluginEntry], problems: list[Problem], place: str
) -> list[PluginChoice]:
    """All choices of an axis, with sweeps expanded; problems at `place` are appended to `problems`."""
    found: list[PluginChoice] = []
    for i, entry in enumerate(entries):
        single = len(entries) == 1 and place in ("data", "stream.scenario")  # written without a list
        path = place if single else f"{place}[{i}]"
        try:
            use, first = spelled_out(group, entry.use)
        except registry.UnknownPlugin as error:
            problems.append(Problem(f"{path}.use" if entry.params else path, str(error)))
            continue
        cls = registry.load(group, use)
        variants = unroll(cls, first | entry.params)
        if not variants:
            problems.append(Problem(path, "an empty list leaves nothing to run. Give it a value."))
        if len(found) + len(variants) > MAX_VARIANTS:
            text = f"sweeps make more than {MAX_VARIANTS} entries. Sweep over fewer values."
            problems.append(Problem(path, text))
            return found
        for params, label in variants:
            checked, wrong = check_params(cls, params, path)
            problems += [w for w in wrong if w not in problems]
            title = entry.name or ("" if wrong else cls(**checked).title()) or use
            found.append(PluginChoice(use, title + label, checked, getattr(entry, "reset", None)))
    return found


# -- across axes -----------------------------------------------------------------------------------


def _resolve_corruptions(
    stream: _Section, own: Sequence[str], problems: list[Problem], name: str
) -> _Section:
    """A section with named sets of corruptions expanded; `own` are the data's own domains."""
    known: list[str] = [*own, *registry.names("corruptions")]
    names: list[str] = []
    for i, item in enumerate(stream.corruptions):
        path = f"{name}.corruptions" + ("" if len(stream.corruptions) == 1 else f"[{i}]")
        if item not in SETS and item not in known and item != "clean":
            hint = suggest(item, [*sorted(SETS), "clean", *known])
            problems.append(Problem(path, f'unknown corruption "{item}". {hint}'))
        for each in SETS.get(item, (item,)):
            if each in names:
                problems.append(Problem(path, f'"{each}" is given twice. Remove one.'))
            names.append(each)
    return stream.model_copy(update={"corruptions": names})


def _order_problems(stream: StreamSection) -> list[Problem]:
    """Why the domains cannot come in CoTTA's orders, or why two orders are the same."""
    numbers = cotta_numbers(stream.domain_order)
    text = cotta_problem(stream.corruptions, numbers) if numbers else None
    return [Problem("stream.domain_order", text)] if text else []


def _rate_problems(stream: StreamSection, resets: Sequence[str]) -> list[Problem]:
    """Resets and rates of adaptation that contradict the batches of the stream."""
    problems = []
    if stream.straddle and "domain" in resets:
        text = "batches that cross the borders of domains have no reset there. Use another reset."
        problems.append(Problem("stream.straddle", text))
    if stream.window > 1 and stream.batch_size != [1]:
        problems.append(Problem("stream.window", "a window needs batches of one image. Set batch_size: 1."))
    if stream.window > 1 and any(batches_between(reset) < stream.window for reset in resets):
        text = "a window is emptied by every reset, so that it is never full. Use another reset."
        problems.append(Problem("stream.window", text))
    if stream.window > 1 and stream.adapt_every > 1:
        text = "a window adapts once for every filled window already. Remove one of the two."
        problems.append(Problem("stream.adapt_every", text))
    return problems


def _repeated_names(axes: dict[str, list[PluginChoice]]) -> list[Problem]:
    problems = []
    for axis, choices in axes.items():
        place = "stream.scenario" if axis == "scenarios" else axis
        for name, count in Counter(choice.name for choice in choices).items():
            if count > 1:
                text = f'{count} entries are called "{name}". Give each its own `name:`.'
                problems.append(Problem(place, text))
    return problems


def _repeated_scenarios(choices: Sequence[PluginChoice]) -> list[Problem]:
    """Scenarios that differ in their names only, so that their cells would have the same keys."""
    first: dict[str, str] = {}
    problems = []
    for choice in choices:
        twin = first.setdefault(f"{choice.use} {make(choice, 'streams').text}", choice.name)
        if twin != choice.name:
            text = f'"{twin}" and "{choice.name}" are the same scenario with the same parameters. Remove one.'
            problems.append(Problem("stream.scenario", text))
    return problems


def _mismatches(data: PluginChoice, models: Sequence[PluginChoice]) -> list[Problem]:
    """Models whose input size or number of classes differs from the data's."""
    problems = []
    for i, choice in enumerate(models):
        model = make(choice, "models")
        source = make_data(data, model)
        for fact, unit in (("num_classes", "classes"), ("input_size", "pixels per side")):
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
            continue  # a single value may be written without a list
        if isinstance(part, int):
            path += f"[{part}]"
        elif not _UNION_MEMBER.fullmatch(str(part)):
            path += f".{part}" if path else str(part)
    kind = error["type"]
    if kind == "extra_forbidden":
        known = _section_fields(str(error["loc"][0]))
        return Problem(path, f"unknown field. {suggest(str(error['loc'][-1]), known, 'Fields')}")
    if kind == "missing":
        return Problem(path, "is missing. Add it; see benchmark.yaml for an example.")
    if kind == "string_pattern_mismatch":
        text = "may hold letters, digits, dots, dashes and underscores only. Rename it."
        return Problem(path, text)
    why = error["msg"].removeprefix("Value error, ")  # what pydantic puts before our own texts
    return Problem(path, f"{shown(error['input'])} does not fit: {why}. Correct the value.")


def _section_fields(name: str) -> list[str]:
    """The fields of a section of the file, or those of the file itself if there is no such section."""
    field = BenchmarkFile.model_fields.get(name)
    kinds = [] if field is None else [field.annotation, *get_args(field.annotation)]
    sections = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Strict)]
    return list((sections or [BenchmarkFile])[0].model_fields)
