"""`--micro`: a smoke run of a large benchmark, on the built-in images and small networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from tta_bench.config.benchmark import Benchmark, PluginChoice, make
from tta_bench.config.schema import Filter, PresetEntry
from tta_bench.errors import UserError
from tta_bench.plugins import registry

DATA = "cifar10-mini"
SIBLINGS = {"vit": "vit-micro", "resnet": "resnet-micro", "vim": "vim-micro"}
MOST_ROUNDS, MOST_DOMAINS, MOST_IMAGES, LARGEST_BATCH = 2, 3, 64, 16

Pattern = TypeVar("Pattern", Filter, PresetEntry)


def shrunk(benchmark: Benchmark) -> Benchmark:
    """The benchmark `NAME-micro`: a short stream, with each model replaced by the small one of its family."""
    siblings = [_sibling(choice) for choice in benchmark.models]
    renamed: dict[str, str] = {}
    for choice, sibling in zip(benchmark.models, siblings, strict=True):
        renamed |= {choice.use: sibling, choice.name: sibling}  # filters may use either name
    stream, known = benchmark.stream, {*registry.names("corruptions"), "clean"}
    # Domains that are not corruptions, such as `sketch`, become `clean`.
    domains = dict.fromkeys(name if name in known else "clean" for name in stream.corruptions)
    short = {
        "corruptions": list(domains)[:MOST_DOMAINS],
        "rounds": min(stream.rounds, MOST_ROUNDS),
        "limit": min(stream.limit or MOST_IMAGES, MOST_IMAGES),
        "batch_size": list(dict.fromkeys(min(size, LARGEST_BATCH) for size in stream.batch_size)),
    }
    return replace(
        benchmark,
        name=f"{benchmark.name}-micro",
        data=PluginChoice(DATA, DATA),
        models=tuple(PluginChoice(name, name) for name in dict.fromkeys(siblings)),
        stream=stream.model_copy(update=short),
        include=_following(benchmark.include, renamed),
        exclude=_following(benchmark.exclude, renamed),
        presets=_following(benchmark.presets, renamed),
    )


def _sibling(choice: PluginChoice) -> str:
    family = make(choice, "models").family
    if family not in SIBLINGS:
        known = ", ".join(SIBLINGS)
        raise UserError(f"--micro: {choice.name} is of the family {family}; small models are {known} only.")
    return SIBLINGS[family]


def _following(patterns: Sequence[Pattern], renamed: Mapping[str, str]) -> tuple[Pattern, ...]:
    """Patterns with the names of replaced models updated; wildcards stay."""
    return tuple(p.model_copy(update={"model": renamed.get(p.model or "", p.model)}) for p in patterns)
