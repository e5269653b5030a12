"""References by name, from the entry points of the group `tta_bench.references`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from tta_bench.errors import UserError, suggest
from tta_bench.plugins import registry
from tta_bench.tables.references.reference import Reference

GROUP = "references"


def names() -> list[str]:
    """The names of the installed references; nothing is imported."""
    return registry.names(GROUP)


def as_names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """One name, several or none as a tuple, each once."""
    return tuple(dict.fromkeys([given] if isinstance(given, str) else given or ()))


def load(name: str) -> Reference:
    """A reference by name, or by the path of a CSV with a YAML of the same name beside it."""
    if name.endswith(".csv"):
        from tta_bench.tables.references.files import read

        return replace(read(Path(name)), name=name)
    if name not in names():
        remedy = "or give the path of a CSV with a YAML of the same name beside it."
        raise UserError(
            f'reference "{name}": not found. {suggest(name, names(), "There are").rstrip(".")}; {remedy}'
        )
    return _loaded(name, registry.find(GROUP, name).value)


@lru_cache(maxsize=32)
def _loaded(name: str, value: str) -> Reference:
    """The reference of an entry point, which is asked once."""
    with registry.asking(GROUP, name):
        found = registry.load(GROUP, name)()
        if not isinstance(found, Reference):
            raise TypeError(f"it returns {type(found).__name__}, not a Reference")
        return replace(found, name=name)
