"""What a shell offers when a value is completed; neither torch nor Ray is imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import typer

from tta_bench.cli import schema_fields
from tta_bench.cli.schema_fields import Completion
from tta_bench.errors import UserError
from tta_bench.plugins import registry

FIGURES = ["motivation", "online", "rounds", "pareto"]
OVERWRITE = ["missing", "failed", "all"]
WHOLE = ["all", "tidy"]  # layouts that are no plugins


def one_of(values: list[str]) -> Callable[[], list[str]]:
    """A completion with these values."""
    return lambda: values


def field_of(section: str, field: str) -> Callable[[], list[str]]:
    """A completion with the values that a field of the benchmark file allows."""
    return lambda: schema_fields.values(section, field)


def plugins(group: str) -> Callable[[], list[str]]:
    """A completion with the names of the installed plugins of a group."""
    return lambda: registry.names(group)


def parameters(group: str, option: str) -> Callable[[typer.Context], list[Completion]]:
    """A completion with the parameters of the plugin that an argument or option names."""

    def found(ctx: typer.Context) -> list[Completion]:
        return schema_fields.parameters(group, str(_given(ctx, option)))

    return found


def layouts() -> list[str]:
    """The installed layouts."""
    return sorted([*WHOLE, *registry.names("layouts")])


def formats() -> list[str]:
    """The formats of tables, and the file extensions that also name one."""
    from tta_bench.tables.render import ALIASES, FORMATS

    return sorted([*FORMATS, *ALIASES])


def references() -> list[str]:
    """The installed references."""
    return registry.names("references")


def recipes() -> list[str]:
    """The recipes in the package."""
    from tta_bench.commands.recipes import recipes

    return list(recipes())


def kinds() -> list[str]:
    """What `tta-bench new` creates."""
    from tta_bench.scaffold import GROUPS

    return list(GROUPS)


def groups() -> list[str]:
    """The groups of plugins."""
    return list(registry.LISTED)


def of_group(ctx: typer.Context) -> list[str]:
    """The plugins of the group that the command line names."""
    group = _given(ctx, "group")
    return registry.names(group) if group in registry.LISTED else []


def any_plugin() -> list[str]:
    """All plugins of cells, each by its name and as `group/name`."""
    found = [(group, name) for group in registry.GROUPS for name in registry.names(group)]
    return sorted({name for _, name in found}) + [f"{group}/{name}" for group, name in found]


def benchmarks(ctx: typer.Context) -> list[str]:
    """The benchmarks in the results folder."""
    from tta_bench.storage.manifest import benchmarks

    return benchmarks(Path(_given(ctx, "results") or "results"))


def filters() -> list[str]:
    """What --only accepts: a key and, for plugins, an installed name."""
    named = {"model": "models", "quantizer": "quantizers", "method": "methods"}
    found = [f"{key}={name}" for key, group in named.items() for name in registry.names(group)]
    return [*found, "bits=", "seed="]


def overrides(ctx: typer.Context) -> list[Completion]:
    """The paths of the benchmark file; if it can be read, also those of its plugins' parameters."""
    return schema_fields.paths(_read(_given(ctx, "file") or _given(ctx, "plan")))


def _read(file: Any) -> Mapping[str, Any]:
    """A benchmark file as it is; empty if there is none yet, or if it is not valid YAML."""
    from tta_bench.config.yaml import read_yaml

    try:
        raw = read_yaml(Path(file)) if file else {}
    except UserError:
        return {}
    return raw if isinstance(raw, dict) else {}


def _given(ctx: typer.Context, name: str) -> Any:
    """The value of an argument or option on the command line so far, or its default."""
    if (value := ctx.params.get(name)) is not None:
        return value
    arguments = [each.name for each in ctx.command.params if each.param_type_name == "argument"]
    # While the value of an option is missing, arguments are not assigned to their names yet.
    unassigned = dict(zip(arguments, ctx.args, strict=False))
    defaults = {each.name: each.default for each in ctx.command.params}
    return unassigned.get(name, defaults.get(name))
