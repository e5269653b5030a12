"""`tta-bench list GROUP NAME`: one plugin with its parameters, and where presets change their defaults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any

from tta_bench.cli.listing import check_group
from tta_bench.config.parameters import describe_fields
from tta_bench.description import Description, columns
from tta_bench.plugins import registry
from tta_bench.plugins.range_text import in_short

BITS = ("FP32", "W8A8", "W6A6", "W4A4")  # for which presets are asked
COLUMNS = ("parameter", "type", "default", "range", "what")
TYPES = {"null": "null", "boolean": "true or false", "string": "text", "array": "list", "object": "mapping"}


def describe_plugin(group: str, name: str) -> Description:
    """What a plugin does, its parameters, and the models and bit-widths for which presets change them."""
    check_group(group)
    if group == "references":
        from tta_bench.tables.references.page import describe

        return describe(name, registry.origin(group, name))
    plugin: Any = registry.load(group, name)
    text = (plugin.__doc__ or "").strip()
    fields = (
        describe_fields(plugin) if isinstance(plugin, type) and is_dataclass(plugin) else []
    )  # a corruption or layout is a function
    presets = _preset_values(group, name)
    parameters = [_parameter(field, presets.get(field["parameter"], {})) for field in fields]
    shown = [{column: each[column] for column in COLUMNS} for each in parameters]
    changed = [f"  {each['parameter']}: {_told(each['presets'])}" for each in parameters if each["presets"]]
    parts = [f"{group} {name} ({registry.origin(group, name)})", text]
    parts.append(columns(shown) if shown else "It has no parameters.")
    parts += ["\n".join(["Presets change defaults:", *changed])] if changed else []
    data = {"group": group, "name": name, "what": text, "parameters": parameters}
    return Description("\n\n".join(parts), data)


def _parameter(field: dict[str, Any], presets: dict[str, list[str]]) -> dict[str, Any]:
    """One parameter for programs and people."""
    default = "required" if field["required"] else _value(field["default"])
    return {
        "parameter": field["parameter"],
        "type": _type(field["schema"]),
        "default": default,
        "range": in_short(field["schema"]),
        "what": field["doc"],
        "schema": field["schema"],
        "presets": {value: places for value, places in presets.items() if value != default},
    }


def _type(schema: Any) -> str:
    """The type of a JSON schema in a word or two."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(_type, schema["anyOf"])))
    if "enum" in schema or "const" in schema:
        return "choice"
    kind = schema.get("type", "any value")
    return TYPES.get(kind, kind)


def _value(value: Any) -> str:
    """A value as YAML has it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return '""' if value == "" else str(value)


def _told(presets: dict[str, list[str]]) -> str:
    return "; ".join(f"{value} on {', '.join(places)}" for value, places in presets.items())


# -- presets ---------------------------------------------------------------------------------------


def _preset_values(group: str, name: str) -> dict[str, dict[str, list[str]]]:
    """For each parameter that presets set, its values, each with the models (and bit-widths) that get it."""
    found: dict[str, dict[str, dict[str, list[str]]]] = {}
    for model, bits, params in _presets(group, name):
        for parameter, value in params.items():
            found.setdefault(parameter, {}).setdefault(_value(value), {}).setdefault(model, []).append(bits)
    return {
        parameter: {value: [_place(*place) for place in places.items()] for value, places in values.items()}
        for parameter, values in found.items()
    }


def _presets(group: str, name: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The presets for every installed model and several bit-widths."""
    if group not in ("methods", "data"):
        return
    from tta_bench.api import Target

    plugin = registry.load(group, name)
    for model in registry.names("models"):
        try:
            source = registry.load("models", model)()
        except (registry.UnknownPlugin, TypeError, ValueError):  # one that needs parameters, or does not work
            continue
        if group == "data":
            yield model, "", plugin.presets(source)
            continue
        for bits in BITS:
            yield model, bits, plugin.presets(Target(source.title() or model, source.family, bits))


def _place(model: str, bits: list[str]) -> str:
    """A model, with the bit-widths unless a preset is the same for all of them."""
    return model if bits in ([""], [*BITS]) else f"{model} {'/'.join(bits)}"
