"""Names of streams in a benchmark with several: `mixed, severity 3, domain order cotta 0`."""

from __future__ import annotations

from collections.abc import Sequence

DOMAIN_ORDER = "domain order"  # before an order of domains, which is the last part of a name
Axis = tuple[str, object, Sequence[object]]  # its word, a value and all values


def name_of(*axes: Axis) -> str:
    """The name of a stream: words and values of the axes that have several values."""
    parts = [f"{word} {value}".strip() for word, value, values in axes if len(values) > 1]
    return ", ".join(parts)


def without_order(name: str) -> tuple[str, str]:
    """The name without the order of the domains, and that order; empty if the name has none."""
    rest, found, order = name.rpartition(f"{DOMAIN_ORDER} ")
    return (rest.removesuffix(", "), order) if found else (name, "")
