"""Checks of every plugin class but corruptions, which are functions."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any


def parameters_are_plain(plugin: type) -> None:
    """parameters have defaults and are plain data (JSON)."""
    json.dumps(asdict(plugin()))


def version_is_text(plugin: Any) -> None:
    """declares a version."""
    assert isinstance(plugin.version, str), "`version` must be a text"
    assert plugin.version, "`version` is empty"
