"""The contract suite: which checks a plugin of each group gets, and what came of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from inspect import isfunction
from types import ModuleType
from typing import Any

from tta_bench.api import Model
from tta_bench.plugins import registry
from tta_bench.plugins.isolation import settings_kept
from tta_bench.testing import (
    corruption_checks,
    data_checks,
    method_checks,
    method_class_checks,
    model_checks,
    plugin_checks,
    quantizer_checks,
    scenario_checks,
)
from tta_bench.testing.bench import Bench

MICRO_MODELS = ("vit-micro", "resnet-micro", "vim-micro")
Check = Callable[..., None]


class ContractBroken(AssertionError):
    """A plugin breaks its contract; the text lists every problem."""


@dataclass(frozen=True)
class Outcome:
    """One check on one subject: its problem, or the reason why it was skipped, or neither."""

    check: str
    subject: str
    problem: str | None = None
    skipped: str | None = None


def check(group: str, name: str, **params: Any) -> list[Outcome]:
    """Run the suite on a plugin with these parameters; raise ContractBroken if any check fails."""
    outcomes = list(outcomes_of(group, name, **params))
    broken = [o for o in outcomes if o.problem]
    if broken:
        lines = [f"{o.check} ({o.subject}): {o.problem}" for o in broken]
        raise ContractBroken(f'{group} "{name}":\n' + "\n".join(lines))
    return outcomes


def outcomes_of(group: str, name: str, **params: Any) -> Iterator[Outcome]:
    """The outcome of every check of the suite on one plugin."""
    plugin = registry.load(group, name)
    if group == "corruptions":
        yield from _each(checks_in(corruption_checks), name, plugin, name)
        return
    yield from _each(checks_in(plugin_checks), name, plugin)
    if group == "models":
        yield from _each(checks_in(model_checks), name, plugin(**params))
    elif group == "streams":
        yield from _each(checks_in(scenario_checks), name, plugin(**params))
    elif group == "data":
        data = plugin(**params)
        if missing := data.problems([]):
            yield Outcome("data", name, skipped=missing[0])
        else:
            yield from _each(checks_in(data_checks), name, data)
    else:
        if group == "methods":
            yield from _each(checks_in(method_class_checks), name, plugin)
        yield from _on_models(group, plugin, params)


def checks_in(module: ModuleType) -> list[Check]:
    """The checks of a module, in order: all public functions that it defines."""
    functions = [function for function in vars(module).values() if isfunction(function)]
    return [f for f in functions if f.__module__ == module.__name__ and not f.__name__.startswith("_")]


def _on_models(group: str, plugin: type, params: dict[str, Any]) -> Iterator[Outcome]:
    """Check a method or a quantizer on every small network that it supports."""
    checks = checks_in(method_checks if group == "methods" else quantizer_checks)
    for name in MICRO_MODELS:
        model = registry.load("models", name)().build()
        reason = _make(group, plugin, model, params).unsupported(model)
        if reason is not None:
            yield Outcome("unsupported", name, skipped=reason)
            continue
        yield from _each(checks, name, Bench(partial(_make, group, plugin, model, params), model))


def _make(group: str, plugin: Any, model: Model, params: dict[str, Any]) -> Any:
    presets = plugin.presets(model.target()) if group == "methods" else {}
    return plugin(**(presets | params))


def _each(checks: Iterable[Check], subject: str, *arguments: Any) -> Iterator[Outcome]:
    """Call each check with the arguments; its docstring is its title."""
    for check in checks:
        title = (check.__doc__ or check.__name__).strip().rstrip(".")
        try:
            with settings_kept(subject):  # a setting that a plugin changes would reach every other plugin
                check(*arguments)
            yield Outcome(title, subject)
        except Exception as error:  # a plugin can fail in any way
            yield Outcome(title, subject, problem=f"{type(error).__name__}: {error}")
