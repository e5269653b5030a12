"""`tta-bench list`: the installed plugins and their properties."""

from __future__ import annotations

from typing import Any

from tta_bench.config.parameters import describe_fields
from tta_bench.description import Description, columns
from tta_bench.errors import UserError, suggest
from tta_bench.plugins import registry

FACTS = {
    "methods": ("family", "passes", "needs", "min_batch_size", "version"),
    "quantizers": ("version", "calibration_images"),
    "models": ("family", "input_size", "num_classes", "version"),
    "data": ("input_size", "num_classes", "version"),
    "corruptions": (),
    "layouts": (),
    "references": ("numbers", "networks", "confidence"),
    "streams": ("uses_labels", "resamples", "version"),
}
LABELS = {"passes": "#FP/#BP", "min_batch_size": "min batch"}


def describe(group: str | None, long: bool) -> Description:
    """The plugins of a group, or of all groups; `long` imports each and shows its properties or its error."""
    if group is not None:
        check_group(group)
    groups = [group] if group else list(registry.LISTED)
    if not long:
        data: dict[str, Any] = {g: registry.names(g) for g in groups}
        width = max(map(len, groups))
        lines = [f"{g:<{width}}  {', '.join(names)}" for g, names in data.items()]
        return Description("\n".join(lines), data)
    data = {g: [_facts(g, name) for name in registry.names(g)] for g in groups}
    return Description("\n\n".join(_text(g, rows) for g, rows in data.items()), data)


def check_group(group: str) -> None:
    """Raise an error if there is no such group."""
    if group not in registry.LISTED:
        raise UserError(f'list: unknown group "{group}". {suggest(group, list(registry.LISTED))}')


def locate(plugin: str) -> tuple[str, str]:
    """(group, name) of a plugin given as `name` or `group/name`."""
    group, slash, name = plugin.partition("/")
    if slash:
        registry.find(group, name)
        return group, name
    homes = [g for g in registry.GROUPS if plugin in registry.names(g)]
    if not homes:
        known = [name for g in registry.GROUPS for name in registry.names(g)]
        raise UserError(f'no plugin "{plugin}" is installed. {suggest(plugin, known)}')
    if len(homes) > 1:
        raise UserError(f'"{plugin}" is in {" and ".join(homes)}. Write e.g. {homes[0]}/{plugin}.')
    return homes[0], plugin


def _facts(group: str, name: str) -> dict[str, Any]:
    """The properties of a plugin; one that cannot be imported shows its error instead."""
    row: dict[str, Any] = {"name": name}
    try:
        if group == "references":
            return row | _facts_of_reference(name) | {"from": registry.origin(group, name), "parameters": []}
        plugin = registry.load(group, name)
        parameters = [] if group in ("corruptions", "layouts") else describe_fields(plugin)
    except (UserError, TypeError) as error:
        unknown = {LABELS.get(fact, fact): "" for fact in FACTS[group]}
        return row | unknown | {"what": f"BROKEN: {error}", "from": "", "parameters": []}
    for fact in FACTS[group]:
        value = _passes(plugin) if fact == "passes" else getattr(plugin, fact, "")
        # Where a fact depends on parameters, the class has a property.
        row[LABELS.get(fact, fact)] = str(value) if isinstance(value, (str, int)) else ""
    text = getattr(plugin, "summary", "") or (plugin.__doc__ or "").strip().split("\n")[0]
    return row | {"what": text, "from": registry.origin(group, name), "parameters": parameters}


def _facts_of_reference(name: str) -> dict[str, str]:
    """How many numbers a reference has, of which networks, and how far they can be trusted."""
    from tta_bench.tables.references import load

    found = load(name)
    confidence = dict.fromkeys(each.setting.confidence for each in found.rows if each.setting.confidence)
    networks = dict.fromkeys(each.model for each in found.rows)
    return {
        "numbers": str(len(found.rows)),
        "networks": ", ".join(networks),
        "confidence": "; ".join(confidence),
        "what": found.title,
    }


def _passes(method: Any) -> str:
    """Forward and backward passes per batch with default parameters; empty if they are not known."""
    try:
        return method.passes_shown or "{}/{}".format(*method().passes())
    except (TypeError, ValueError, IndexError):  # a parameter without a default, or numbers that are none
        return ""


def _text(group: str, rows: list[dict[str, Any]]) -> str:
    """The properties of a group as one table, the parameters of its plugins with ranges as another."""
    facts = columns([{key: value for key, value in row.items() if key != "parameters"} for row in rows])
    shown = [
        {"name": row["name"], **{key: field[key] for key in ("parameter", "default", "range")}}
        for row in rows
        for field in row["parameters"]
    ]
    return f"{group}\n{facts}" + (f"\n\nparameters of {group}\n{columns(shown)}" if shown else "")
