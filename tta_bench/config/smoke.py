"""`--micro`: a smoke run of a large benchmark, on the built-in images and small networks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from tta_bench.config.benchmark import Benchmark, PluginChoice, make
from tta_bench.config.schema import Filter, PresetEntry
from tta_bench.config.stream_values import batches_between, cotta_numbers
from tta_bench.errors import UserError
from tta_bench.plugins import registry
from tta_bench.streams.schedules.cotta_orders import distinct_orders

DATA = "cifar10-mini"
SIBLINGS = {"vit": "vit-micro", "resnet": "resnet-micro", "vim": "vim-micro"}
MOST_ROUNDS, MOST_DOMAINS, MOST_IMAGES, LARGEST_BATCH = 2, 3, 64, 16
MOST_ORDERS = 3
MOST_BATCHES = MOST_IMAGES // LARGEST_BATCH  # of a domain

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
    count = min(stream.limit or MOST_IMAGES, MOST_IMAGES)
    short = {
        "corruptions": list(domains)[:MOST_DOMAINS],
        "rounds": min(stream.rounds, MOST_ROUNDS),
        "limit": count,
        "batch_size": list(dict.fromkeys(min(size, LARGEST_BATCH) for size in stream.batch_size)),
        "reset": _reset_within(stream.reset, stream.window),
        "adapt_every": min(stream.adapt_every, MOST_BATCHES),
        "window": min(stream.window, LARGEST_BATCH),
        "domain_order": _orders_within(stream.domain_order, list(domains)[:MOST_DOMAINS]),
    }
    small = replace(
        benchmark,
        name=f"{benchmark.name}-micro",
        data=PluginChoice(DATA, DATA),
        models=tuple(PluginChoice(name, name) for name in dict.fromkeys(siblings)),
        stream=stream.model_copy(update=short),
        scenarios=tuple(_reduced(choice, count) for choice in benchmark.scenarios),
        methods=tuple(
            replace(choice, reset=choice.reset and _reset_within(choice.reset, stream.window))
            for choice in benchmark.methods
        ),
        include=_following(benchmark.include, renamed),
        exclude=_following(benchmark.exclude, renamed),
        presets=_following(benchmark.presets, renamed),
    )
    return replace(small, reduced=tuple(_reductions(benchmark, small)))


def _reductions(benchmark: Benchmark, small: Benchmark) -> list[str]:
    """What differs in how a stream is reset, adapted to, arranged and cut, which protocols also set."""
    found = []
    for name in ("reset", "adapt_every", "window", "domain_order", "rounds", "batch_size"):
        before, after = (_shown(getattr(each.stream, name)) for each in (benchmark, small))
        found += [f"stream.{name} is {after}, not {before}"] if before != after else []
    resets = zip(benchmark.methods, small.methods, strict=True)
    found += [f"reset of {a.name} is {b.reset}, not {a.reset}" for a, b in resets if a.reset != b.reset]
    for one, other in zip(benchmark.scenarios, small.scenarios, strict=True):
        before, after = (vars(make(choice, "streams")) for choice in (one, other))
        found += [f"{k} of {one.name} is {after[k]}, not {before[k]}" for k in after if before[k] != after[k]]
    return found


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _orders_within(orders: Sequence[str], domains: Sequence[str]) -> list[str]:
    """The first orders of the domains; of CoTTA's, those that differ on so few."""
    different = distinct_orders(domains, cotta_numbers(orders))
    return [each for each in orders if set(cotta_numbers([each])) <= set(different)][:MOST_ORDERS]


def _reset_within(reset: str, window: int) -> str:
    """A reset after so many batches that several of them are within one round of the short stream.

    A window must be full before it is emptied by a reset.
    """
    batches, most = batches_between(reset), max(MOST_BATCHES, min(window, LARGEST_BATCH)) + 1
    return f"every {most}" if most < batches < math.inf else reset


def _reduced(choice: PluginChoice, count: int) -> PluginChoice:
    """A scenario with the parameters that it needs for streams of so few images."""
    return replace(choice, params=choice.params | make(choice, "streams").reduced(count))


def _sibling(choice: PluginChoice) -> str:
    family = make(choice, "models").family
    if family not in SIBLINGS:
        known = ", ".join(SIBLINGS)
        raise UserError(f"--micro: {choice.name} is of the family {family}; small models are {known} only.")
    return SIBLINGS[family]


def _following(patterns: Sequence[Pattern], renamed: Mapping[str, str]) -> tuple[Pattern, ...]:
    """Patterns with the names of replaced models updated; wildcards stay."""
    return tuple(p.model_copy(update={"model": renamed.get(p.model or "", p.model)}) for p in patterns)
