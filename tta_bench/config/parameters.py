"""A plugin's parameters: checked against its fields, with lists expanded into sweeps."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from itertools import product
from typing import Any

from tta_bench.config.yaml import plain_value
from tta_bench.errors import ConfigError, Problem, suggest
from tta_bench.plugins import registry
from tta_bench.plugins.field_docs import field_docs
from tta_bench.plugins.ranges import field_types

MAX_VARIANTS = 1000  # of one axis; a longer sweep is a mistake


def check_params(cls: type, params: dict[str, Any], path: str) -> tuple[dict[str, Any], list[Problem]]:
    """Parameters converted to the types of a plugin's fields, and their problems."""
    if not dataclasses.is_dataclass(cls):
        return {}, [Problem(path, f"the plugin {cls.__name__} is no dataclass. Decorate it with @dataclass.")]
    try:
        types = field_types(cls)
    except TypeError as error:
        return {}, [Problem(path, f"its plugin does not work: {error}.")]
    fields = list(types)
    checked: dict[str, Any] = {}
    problems = []
    for key, value in params.items():
        if key not in fields:
            known = suggest(key, fields, "Fields") if fields else "It has no fields."
            problems.append(Problem(f"{path}.{key}", f"unknown field. {known}"))
            continue
        try:
            checked[key] = types[key].fit(value)
        except ValueError as error:
            problems.append(Problem(f"{path}.{key}", str(error)))
    if not problems:
        try:
            cls(**checked)
        except ValueError as error:
            problems.append(Problem(path, str(error)[:500]))
    return checked, problems


def describe_fields(cls: type) -> list[dict[str, Any]]:
    """Name, default, range, JSON schema and one line on every field that a file may set."""
    fields = {field.name: field for field in dataclasses.fields(cls)}
    docs = field_docs(cls)
    return [
        {
            "parameter": name,
            "required": _default(fields[name]) is dataclasses.MISSING,
            "default": None if (found := _default(fields[name])) is dataclasses.MISSING else found,
            "range": kind.short or kind.words,
            "schema": kind.schema,
            "is_list": kind.takes("array"),
            "doc": docs.get(name, ""),
        }
        for name, kind in field_types(cls).items()
    ]


def _default(field: dataclasses.Field[Any]) -> Any:
    """The default value of a field; MISSING if it has none."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def spelled_out(group: str, use: str) -> tuple[str, dict[str, Any]]:
    """The plugin and parameters of `NAME` or `NAME:VALUE`; the value is that of the plugin's first field."""
    name, colon, value = use.partition(":")
    cls = registry.load(group, name)
    if not colon:
        return name, {}
    fields = [f.name for f in dataclasses.fields(cls)]
    if not fields or not value:
        raise registry.UnknownPlugin(f'"{use}": it takes no value. Write {name}.')
    return name, {fields[0]: value}


def unroll(cls: type, given: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """Every combination of list-valued parameters, each with a label such as ` (lr=0.1)`."""
    lists = _list_fields(cls)
    swept = {key: value for key, value in given.items() if isinstance(value, list) and key not in lists}
    if math.prod(map(len, swept.values())) > MAX_VARIANTS:  # the caller refuses so many
        return [(given, "")] * (MAX_VARIANTS + 1)
    combinations = product(*([(k, v) for v in values] for k, values in swept.items()))
    variants = []
    for combination in combinations:
        label = ", ".join(f"{k}={v}" for k, v in combination)
        variants.append((given | dict(combination), f" ({label})" if label else ""))
    return variants


def _list_fields(cls: type) -> set[str]:
    """Names of the fields whose own value is a list; none for a plugin that `check_params` refuses."""
    try:
        return {name for name, kind in field_types(cls).items() if kind.takes("array")}
    except TypeError:
        return set()


def configured(group: str, name: str, params: dict[str, Any]) -> Any:
    """A plugin with parameters from the command line; ConfigError lists their problems."""
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
