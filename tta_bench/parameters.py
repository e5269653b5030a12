"""A plugin's parameters: checked against its fields, lists unrolled into sweeps."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from itertools import product
from typing import Any, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from tta_bench import registry
from tta_bench.errors import ConfigError, Problem, shown
from tta_bench.yaml_file import plain_value

MAX_VARIANTS = 1000  # of one axis; a longer sweep is a mistake


def check_params(cls: type, params: dict[str, Any], path: str) -> tuple[dict[str, Any], list[Problem]]:
    """Parameters as a plugin's fields have them, and what is wrong with them."""
    if not dataclasses.is_dataclass(cls):
        return {}, [Problem(path, f"its plugin {cls.__name__} is no dataclass. Decorate it with @dataclass.")]
    hints = get_type_hints(cls)
    fields = [f.name for f in dataclasses.fields(cls)]
    checked: dict[str, Any] = {}
    problems = []
    for key, value in params.items():
        if key not in fields:
            known = registry.suggest(key, fields, "Fields") if fields else "It takes none."
            problems.append(Problem(f"{path}.{key}", f"unknown field. {known}"))
            continue
        try:
            checked[key] = _typed(hints[key], value)
        except ValueError as error:
            problems.append(Problem(f"{path}.{key}", str(error)))
    if not problems:
        try:
            cls(**checked)
        except ValueError as error:
            problems.append(Problem(path, str(error)[:500]))
    return checked, problems


def spelled_out(group: str, use: str) -> tuple[str, dict[str, Any]]:
    """The plugin in `NAME` or `NAME:VALUE`; the value is its first field's, as an argument in Python is."""
    name, colon, value = use.partition(":")
    cls = registry.load(group, name)
    if not colon:
        return name, {}
    fields = [f.name for f in dataclasses.fields(cls)]
    if not fields or not value:
        raise registry.UnknownPlugin(f'"{use}": no value can stand there. Write {name}.')
    return name, {fields[0]: value}


def unroll(cls: type, given: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """Every combination of list-valued parameters, with the label that tells them apart."""
    hints = get_type_hints(cls)
    swept = {
        key: value
        for key, value in given.items()
        if isinstance(value, list) and get_origin(hints.get(key)) not in (list, tuple)
    }
    if math.prod(map(len, swept.values())) > MAX_VARIANTS:  # do not build what will be refused
        return [(given, "")] * (MAX_VARIANTS + 1)
    combinations = product(*([(k, v) for v in values] for k, values in swept.items()))
    variants = []
    for combination in combinations:
        label = ", ".join(f"{k}={v}" for k, v in combination)
        variants.append((given | dict(combination), f" ({label})" if label else ""))
    return variants


def _typed(hint: Any, value: Any) -> Any:
    """The value as its field has it; YAML writes 1e-3 as a text, so texts may become numbers."""
    if isinstance(value, bool) and bool not in _members(hint):
        raise ValueError(f"{value} is a truth value, and {_spell(hint)} is wanted.")
    try:
        typed = TypeAdapter(hint, config=ConfigDict(allow_inf_nan=False)).validate_python(value)
        if isinstance(typed, int) and abs(typed) >= 2**63:
            raise ValueError(f"{shown(value)} does not fit: it is too large. Give a smaller number.")
        return typed
    except ValidationError as error:
        first = error.errors()[0]["msg"]
        raise ValueError(f"{shown(value)} does not fit: {first}. Give {_spell(hint)}.") from None


def _members(hint: Any) -> tuple[Any, ...]:
    return (hint, *getattr(hint, "__args__", ()))


def _spell(hint: Any) -> str:
    literals = [a for a in getattr(hint, "__args__", ()) if isinstance(a, str)]
    if literals:
        return "one of " + ", ".join(literals)
    return {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}.get(
        hint, str(hint).replace("typing.", "")
    )


def configured(group: str, name: str, params: dict[str, Any]) -> Any:
    """A plugin with parameters from the command line, or an error that names what is wrong."""
    use, first = spelled_out(group, name)
    cls = registry.load(group, use)
    checked, problems = check_params(cls, first | params, name)
    if problems:
        raise ConfigError(group, problems)
    return cls(**checked)


def settings_of(texts: Sequence[str], option: str = "--set") -> dict[str, Any]:
    """The parameters in `--set key=value` texts; values are YAML."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            problem = Problem(option, f'"{text}" is not of the form key=value. Write e.g. lr=0.01.')
            raise ConfigError("command line", [problem])
        found[key] = plain_value(value, f"{option} {text}")
    return found
