"""Fields of benchmark files and of built-in plugins, from the shipped schema: nothing heavy is imported."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

SCHEMA = Path(__file__).parents[1] / "assets" / "benchmark.schema.json"
GROUPS = ("data", "models", "quantizers", "methods")  # sections of a file that name plugins
Completion = tuple[str, str]  # a text to insert, and what it means
NO_PARAMETERS = {"use", "name", "reset"}  # fields of an entry in a benchmark file that --set does not know


def parameters(group: str, plugin: str) -> list[Completion]:
    """`name=` of every parameter of a built-in plugin, with the value if there are only a few."""
    found = _fields(_plugin(group, plugin))
    return [(text, about) for text, about in found if text.partition("=")[0] not in NO_PARAMETERS]


def values(section: str, field: str) -> list[str]:
    """The values that a field of a section allows by name."""
    return _choices(_definitions()[section]["properties"][field])


def paths(raw: Mapping[str, Any]) -> list[Completion]:
    """`path=` of every value that an override of this benchmark file can set."""
    found = []
    for name, spec in _schema()["properties"].items():
        section = _section(spec)
        if section is None:
            found.append((f"{name}=", spec.get("description", "")))
        else:
            found += [(f"{name}.{text}", about) for text, about in _fields(section)]
    return found + list(_plugin_paths(raw))


def _plugin_paths(raw: Mapping[str, Any]) -> Iterator[Completion]:
    """The fields of the plugins that a file names."""
    stream = raw.get("stream")
    scenario = stream.get("scenario") if isinstance(stream, dict) else None
    sections = [(group, group, raw.get(group)) for group in GROUPS]
    for group, path, given in [*sections, ("streams", "stream.scenario", scenario)]:
        entries = [(f"{path}[{n}]", each) for n, each in enumerate(given)] if isinstance(given, list) else []
        for place, entry in entries or [(path, given)]:
            use = entry.get("use") if isinstance(entry, dict) else entry
            plugin = str(use).partition(":")[0]
            yield from ((f"{place}.{text}", about) for text, about in _fields(_plugin(group, plugin)))


@cache
def _schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(SCHEMA.read_text("utf-8"))
    return found


def _definitions() -> dict[str, Any]:
    found: dict[str, Any] = _schema()["$defs"]
    return found


def _plugin(group: str, plugin: str) -> dict[str, Any]:
    """The schema of a plugin; empty if it is not built in."""
    found: dict[str, Any] = _definitions().get(f"{group}.{plugin}", {})
    return found


def _section(spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """The schema of a section with fields of its own, such as `stream`; None for other values."""
    references = [each.get("$ref", "") for each in (spec, *spec.get("anyOf", ()))]
    known = (_definitions().get(each.rpartition("/")[2], {}) for each in references)
    return next((each for each in known if "properties" in each), None)


def _fields(spec: Mapping[str, Any]) -> Iterator[Completion]:
    """`name=` of every field, or `name=value` for every value if only these are allowed."""
    for name, field in spec.get("properties", {}).items():
        about = field.get("description", "")
        if field.get("default") is not None:
            about = f"{about}; default: {json.dumps(field['default'])}"
        named = _choices(field)
        texts = [f"{name}={value}" for value in named]
        yield from ((text, about) for text in (texts if _only_choices(field) else [f"{name}=", *texts]))


def _alternatives(field: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The single values that a field allows; lists of them, which make an axis, are left out."""
    if "anyOf" in field:
        return [each for option in field["anyOf"] for each in _alternatives(option)]
    return [] if field.get("type") == "array" else [field]


def _choices(field: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    for option in _alternatives(field):
        named = ["true", "false"] if option.get("type") == "boolean" else option.get("enum", [])
        found += [str(value) for value in named or filter(None, [option.get("const")])]
    return found


def _only_choices(field: Mapping[str, Any]) -> bool:
    """Whether no other value is allowed."""
    free = [each for each in _alternatives(field) if not _choices(each) and each.get("type") != "null"]
    return not free and bool(_choices(field))
