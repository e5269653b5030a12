"""Plugins by name, from entry points; built-ins and third parties register in the same way."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from tta_bench.errors import UserError, suggest
from tta_bench.terminal import say

GROUPS = ("methods", "quantizers", "models", "data", "corruptions", "streams")
LISTED = (*GROUPS, "layouts", "references")  # with plugins that are no part of a cell
SLOW_SECONDS = 30.0  # importing torch from a cold disk takes about half of this
# Whatever a plugin raises, also by exit(), is reported as an error of that plugin.
BROKEN = (Exception, SystemExit)


class UnknownPlugin(UserError):
    """There is no plugin of that name, or two, or it cannot be imported."""


def names(group: str) -> list[str]:
    """All registered names of a group; nothing is imported."""
    return sorted({point.name for point in _points(group)})


def built_in(group: str) -> list[str]:
    """The names of a group's plugins that are part of tta-bench."""
    return [name for name in names(group) if origin(group, name).startswith("tta-bench ")]


def load(group: str, name: str) -> Any:
    """The class or function of a plugin; imports its module."""
    point = find(group, name)
    try:
        with _told_if_slow(group, point):
            return point.load()
    except BROKEN as error:
        raise UnknownPlugin(
            f"{_full_name(group, point)} cannot be imported: {type(error).__name__}: {error}. "
            "Reinstall or remove that package."
        ) from error


@contextmanager
def asking(group: str, name: str) -> Iterator[None]:
    """Turn an error of a plugin's own code before a run into a UserError that names the plugin."""
    try:
        yield
    except UserError:
        raise
    except BROKEN as error:
        raise UserError(
            f"{_full_name(group, find(group, name))} does not work: {type(error).__name__}: {error}. "
            "Fix or remove it."
        ) from error


@contextmanager
def _told_if_slow(group: str, point: EntryPoint) -> Iterator[None]:
    """Print the plugin's name if the block takes long: it may never end.

    It is not stopped by force, because a half-imported torch would make the process useless.
    """
    if point.module in sys.modules:  # called very often, and imported only once
        yield
        return
    text = (
        f"{_full_name(group, point)} is still being imported after {SLOW_SECONDS:g} s ({point.module}). "
        "If that does not end, press Ctrl-C and remove or fix that package."
    )
    watchdog = threading.Timer(SLOW_SECONDS, say, (text, True))
    watchdog.daemon = True
    watchdog.start()
    try:
        yield
    finally:
        watchdog.cancel()


def find(group: str, name: str) -> EntryPoint:
    """The one entry point of that name."""
    points = [point for point in _points(group) if point.name == name]
    if not points:
        raise UnknownPlugin(f'unknown {singular(group)} "{name}". {suggest(name, names(group))}')
    if len({point.value for point in points}) > 1:
        owners = " and ".join(_origin(point) for point in points)
        raise UnknownPlugin(
            f'{singular(group)} "{name}" is registered twice, by {owners}. Uninstall one of them.'
        )
    return points[0]


def origin(group: str, name: str) -> str:
    """The distribution of a plugin, and its version."""
    return _origin(find(group, name))


def _points(group: str) -> list[EntryPoint]:
    return list(_scan(group, tuple(sys.path)))


@functools.cache
def _scan(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """The entry points installed on a path, cached: a scan takes milliseconds, and large grids need many."""
    return tuple(entry_points(group=f"tta_bench.{group}"))


def _origin(point: EntryPoint) -> str:
    dist = point.dist
    return f"{dist.name} {dist.version}" if dist else point.value


def _full_name(group: str, point: EntryPoint) -> str:
    return f'{singular(group)} "{point.name}" ({_origin(point)})'


def singular(group: str) -> str:
    """What one plugin of a group is called in messages."""
    return "scenario" if group == "streams" else group.removesuffix("s")
