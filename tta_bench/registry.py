"""Plugins by name, through entry points alone: built-ins and third parties take the same way."""

from __future__ import annotations

import difflib
import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from tta_bench.errors import UserError

GROUPS = ("methods", "quantizers", "models", "data", "corruptions")


class UnknownPlugin(UserError):
    """No plugin of that name, two of them, or one that cannot be imported."""


def names(group: str) -> list[str]:
    """All registered names of a group; nothing is imported."""
    return sorted({point.name for point in _points(group)})


def load(group: str, name: str) -> Any:
    """The object a name stands for; imports the plugin's module."""
    point = find(group, name)
    try:
        return point.load()
    except Exception as error:  # whatever a plugin's import raises, only its own name suffers
        raise UnknownPlugin(
            f'{_singular(group)} "{name}" ({_origin(point)}) cannot be imported: '
            f"{type(error).__name__}: {error}. Reinstall or remove that package."
        ) from error


@contextmanager
def asking(group: str, name: str) -> Iterator[None]:
    """Say whose fault it is if a plugin cannot answer what is asked of it before a run."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f'{_singular(group)} "{name}" ({origin(group, name)}) does not work: '
            f"{type(error).__name__}: {error}. Mend or remove it."
        ) from error


def find(group: str, name: str) -> EntryPoint:
    """The one entry point of that name."""
    points = [point for point in _points(group) if point.name == name]
    if not points:
        raise UnknownPlugin(f'unknown {_singular(group)} "{name}". {suggest(name, names(group))}')
    if len({point.value for point in points}) > 1:
        owners = " and ".join(_origin(point) for point in points)
        raise UnknownPlugin(
            f'{_singular(group)} "{name}" is registered twice, by {owners}. Uninstall one of them.'
        )
    return points[0]


def origin(group: str, name: str) -> str:
    """The distribution a plugin came with, and its version."""
    return _origin(find(group, name))


def suggest(word: str, known: list[str], what: str = "Known") -> str:
    """`Did you mean …? Known: …` for an error message."""
    close = difflib.get_close_matches(word, known, n=1)
    hint = f'Did you mean "{close[0]}"? ' if close else ""
    return f"{hint}{what}: {', '.join(known)}."


def _points(group: str) -> list[EntryPoint]:
    return list(_scan(group, tuple(sys.path)))


@functools.cache
def _scan(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """What is installed along a path; looking costs milliseconds, and a large grid asks very often."""
    return tuple(entry_points(group=f"tta_bench.{group}"))


def _origin(point: EntryPoint) -> str:
    dist = point.dist
    return f"{dist.name} {dist.version}" if dist else point.value


def _singular(group: str) -> str:
    return group.removesuffix("s")
