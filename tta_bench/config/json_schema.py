"""The JSON Schema of benchmark files, for editors: sections, installed plugins and their parameters.

It accepts what the loader accepts, except numbers in quotes, and refuses every shape that the loader
refuses: unknown fields and plugins, wrong types, numbers out of range. What depends on several values at
once, such as a model that does not fit the data, only the loader checks. It has draft 7, which all editors
know.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from tta_bench.config.parameters import describe_fields
from tta_bench.config.schema import BenchmarkFile, as_list
from tta_bench.corruptions.sets import SETS
from tta_bench.plugins import registry

SHIPPED = Path(__file__).parents[1] / "assets" / "benchmark.schema.json"  # with the built-in plugins
DRAFT = "http://json-schema.org/draft-07/schema#"
# How pydantic writes bounds of a type that has a validator of its own.
BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
PLAIN = (str, int, float, bool, list, type(None))  # defaults that JSON can express
Schema = dict[str, Any]
Names = Callable[[str], Sequence[str]]


def json_schema(names: Names = registry.names) -> Schema:
    """The schema with the plugins that `names` gives for each group; by default all installed ones."""
    found = BenchmarkFile.model_json_schema(schema_generator=_Generator)
    plugins: dict[str, Schema] = {}
    found = _finished(found, names, plugins)
    entries = ("PluginEntry", "MethodEntry")  # each plugin has its own definition
    defs = {name: each for name, each in found.pop("$defs").items() if name not in entries}
    return {"$schema": DRAFT, "title": "tta-bench benchmark", **found, "$defs": defs | plugins}


class _Generator(GenerateJsonSchema):
    """Knows that a single value may be written without a list."""

    def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> JsonSchemaValue:
        found = super().function_before_schema(schema)
        if schema["function"]["function"] is as_list:
            return {"anyOf": [found["items"], found]}
        return found


def _finished(node: Any, names: Names, plugins: dict[str, Schema]) -> Any:
    """A schema with plugins in their places, bounds under their usual names, and no generated titles."""
    if isinstance(node, list):
        return [_finished(each, names, plugins) for each in node]
    if not isinstance(node, dict):
        return node
    if "plugins" in node and "base" in node:
        described = {"description": node["description"]} if "description" in node else {}
        return _place(node["plugins"], node["base"], names, plugins) | described
    made = {
        BOUNDS.get(key, key): _finished(value, names, plugins)
        for key, value in node.items()
        if not (key == "title" and isinstance(value, str))
    }
    if "default" in made:  # an entry in its short form
        made["default"] = _short(made["default"])
    return made


def _short(default: Any) -> Any:
    """A default value as it would be written by hand."""
    if isinstance(default, list):
        return [_short(each) for each in default]
    given = {k: v for k, v in default.items() if v is not None} if isinstance(default, dict) else default
    return given["use"] if isinstance(given, dict) and set(given) == {"use"} else given


# -- plugins ---------------------------------------------------------------------------------------


def _place(group: str, base: Schema, names: Names, plugins: dict[str, Schema]) -> Schema:
    """The schema of a place for plugins of a group; their definitions are added to `plugins`."""
    if group == "corruptions":  # data may have domains of its own
        return {"anyOf": [{"enum": [*SETS, "clean", *names(group)]}, base]}
    if group not in plugins:
        base = _finished(base, names, plugins)
        known = {name: _entry(group, name, base) for name in names(group)}
        plugins |= {f"{group}.{name}": schema for name, schema in known.items()}
        use = _use([*known], base["properties"]["use"])
        plugins[group] = {"anyOf": [use, _choice(group, [*known], use)]}
    return {"$ref": f"#/$defs/{group}"}


def _use(known: list[str], base: Schema) -> Schema:
    """NAME or NAME:VALUE."""
    either = "|".join(map(re.escape, known))
    return {"anyOf": [{"enum": known}, base | {"pattern": f"^({either}):."}]}


def _choice(group: str, known: list[str], use: Schema) -> Schema:
    """A mapping with `use`, whose other fields are those of the plugin that it names."""
    return {
        "type": "object",
        "required": ["use"],
        "properties": {"use": use},
        "allOf": [
            {
                "if": {"required": ["use"], "properties": {"use": {"pattern": f"^{re.escape(name)}(:|$)"}}},
                "then": {"$ref": f"#/$defs/{group}.{name}"},
            }
            for name in known
        ],
    }


def _entry(group: str, name: str, base: Schema) -> Schema:
    """The mapping of one plugin; a plugin that does not work may have any parameters."""
    try:
        plugin = registry.load(group, name)
        fields = describe_fields(plugin)
    except (registry.UnknownPlugin, TypeError):
        return {"type": "object"}
    parameters = {field["parameter"]: _parameter(field) for field in fields}
    summary = getattr(plugin, "summary", "") or (plugin.__doc__ or "").strip().split("\n")[0]
    return {
        "type": "object",
        "description": summary,
        "properties": base["properties"] | parameters,
        "additionalProperties": False,
    }


def _parameter(field: dict[str, Any]) -> Schema:
    """One parameter: a value, or a list of values that makes a sweep."""
    value = {key: each for key, each in field["schema"].items() if key not in ("title", "description")}
    found: Schema = {"description": field["doc"]} if field["doc"] else {}
    if not field["required"] and isinstance(field["default"], PLAIN):
        found["default"] = field["default"]
    if not value or field["is_list"]:
        return found | value
    return found | {"anyOf": [value, {"type": "array", "items": value, "minItems": 1}]}
