"""Read a YAML file as plain data, and set values in it from the command line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from tta_bench.errors import ConfigError, Problem, UserError

MAX_CHARACTERS = 200_000
PLAIN = ("str", "int", "float", "bool", "null", "seq", "map")


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The mapping in a YAML file."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MAX_CHARACTERS + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UserError(f"{path}: cannot be read: {reason}. Check the path.") from error
    if len(text) > MAX_CHARACTERS:
        raise UserError(f"{path}: is longer than {MAX_CHARACTERS} characters. Is it a benchmark file?")
    try:
        raw = parse_yaml(text)
    except NotYaml as error:
        text = f"not valid YAML: {error}. Correct this line."
        raise ConfigError(str(path), [Problem(f"line {error.line}", text)]) from error
    if not isinstance(raw, dict):
        problem = "must be a mapping with name, data, models, methods. See benchmark.yaml."
        raise ConfigError(str(path), [Problem("", problem)])
    return raw


class NotYaml(Exception):
    """Text that is not valid YAML, or uses features that are not supported: problem and line."""

    def __init__(self, problem: str, line: int) -> None:
        super().__init__(problem)
        self.line = line


class _UniqueKeyLoader(yaml.SafeLoader):
    """Accepts plain data only; repeated keys and aliases (which can grow without bound) are errors."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        line = self.peek_event().start_mark.line + 1
        if self.check_event(yaml.events.AliasEvent):
            raise NotYaml("aliases (*) are not supported, write it out", line)
        node: Any = super().compose_node(parent, index)
        kind = node.tag.removeprefix("tag:yaml.org,2002:")
        if kind not in PLAIN:
            raise NotYaml(f"{kind} is not supported here, write a text in quotes", line)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        first: dict[str, yaml.Node] = {}
        for key, _ in node.value:
            if isinstance(key.value, str) and (twin := first.setdefault(key.value, key)) is not key:
                known = twin.start_mark.line + 1
                raise NotYaml(
                    f'key "{key.value}" is given twice, first in line {known}', key.start_mark.line + 1
                )
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except ValueError as error:  # e.g. a number with thousands of digits
            raise NotYaml(str(error), node.start_mark.line + 1) from error


def parse_yaml(text: str) -> Any:
    """The plain data in a text; raises NotYaml."""
    loader = None
    try:
        loader = _UniqueKeyLoader(text)
        return loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        start, mark = error.context_mark, error.problem_mark
        context = f"{error.context} (begun in line {start.line + 1}), " if start and error.context else ""
        raise NotYaml(f"{context}{error.problem}", mark.line + 1 if mark else 1) from error
    except yaml.reader.ReaderError as error:
        # The position is in the whole text, and the character is one that YAML does not allow.
        line = text.count("\n", 0, error.position) + 1
        raise NotYaml(f"character U+{ord(text[error.position]):04X} is not allowed", line) from error
    except RecursionError as error:
        raise NotYaml("it is nested too deeply", loader.line + 1 if loader else 1) from error


def plain_value(text: str, usage: str) -> Any:
    """The YAML value of a text from the command line."""
    try:
        return parse_yaml(text)
    except NotYaml as error:
        raise UserError(f"{usage}: the value is not valid YAML: {error}.") from error


def override_(raw: dict[str, Any], override: str) -> None:
    """Set `path=value` in a raw file; the value is YAML."""
    path, equals, text = override.partition("=")
    steps: list[Any] = [
        int(index) if index else key for key, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path.strip())
    ]
    usage = f'override "{override}"'
    if not equals or not steps:
        raise UserError(f"{usage}: not of the form path=value. Write e.g. -o stream.limit=64.")
    value = plain_value(text, usage)
    here: Any = raw
    for depth, step in enumerate(steps[:-1]):
        following = here.get(step, {}) if isinstance(here, dict) else _item(here, step, usage)
        if isinstance(following, str):  # `data: x` and `data: {use: x}` mean the same
            following = {"use": following}
        if not isinstance(following, (dict, list)):
            at = ".".join(map(str, steps[: depth + 1]))
            raise UserError(f"{usage}: {at} is a plain value and has no fields to set.")
        here[step] = following
        here = following
    if isinstance(here, list):
        _item(here, steps[-1], usage)
    here[steps[-1]] = value


def _item(here: list[Any], index: Any, usage: str) -> Any:
    if not isinstance(index, int) or index >= len(here):
        raise UserError(f"{usage}: the list has {len(here)} entries, counted from [0].")
    return here[index]
