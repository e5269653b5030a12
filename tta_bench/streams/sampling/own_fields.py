"""Parameters that only some samplers of a scenario read."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any


def check_own_fields(scenario: Any, setting: str, own: Collection[str]) -> None:
    """Raise ValueError if a field that this setting does not read has another value than its default.

    The value would be part of the key and of the seed of all orders, and have no other effect.
    """
    for each in dataclasses.fields(scenario):
        if each.name not in own and getattr(scenario, each.name) != each.default:
            reads = ", ".join(own) or "none"
            raise ValueError(f"{each.name}: {setting} does not read it. Remove it. Fields it reads: {reads}.")
