"""A range, given as a JSON schema, as text: for a sentence, or short for a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

KINDS = {
    "integer": "a whole number",
    "number": "a number",
    "string": "a text",
    "boolean": "true or false",
    "null": "null",
    "array": "a list",
    "object": "a mapping",
}
WORDS = ("from {} to {}", "greater than", "at least", "less than", "at most", " and ")
SIGNS = ("{} … {}", ">", "≥", "<", "≤", ", ")


def in_words(schema: Schema) -> str:
    """The values that a schema accepts: `a number greater than 0`, `one of mse, minmax`."""
    if "anyOf" in schema:
        return " or ".join(map(in_words, schema["anyOf"]))
    if "const" in schema:
        return str(schema["const"])
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    if "pattern" in schema and "description" in schema:
        return str(schema["description"])
    kind, limits = KINDS.get(schema.get("type", ""), "another value"), bounds(schema)
    return f"{kind} {'of ' * limits.startswith('at')}{limits}".rstrip()


def bounds(schema: Schema, words: tuple[str, ...] = WORDS) -> str:
    """The bounds of a number: `at least 1`, `from 0 to 1`, `greater than 0 and at most 1`."""
    low, low_open, high, high_open = _limits(schema)
    between, above, least, below, most, and_ = words
    if None not in (low, high) and not (low_open or high_open):
        return between.format(_number(low), _number(high))
    parts = []
    if low is not None:
        parts.append(f"{above if low_open else least} {_number(low)}")
    if high is not None:
        parts.append(f"{below if high_open else most} {_number(high)}")
    return and_.join(parts)


def in_short(schema: Schema) -> str:
    """The same for a table: `> 0`, `0 … 1`, `mse | minmax`; empty if every value of the type is accepted."""
    if "anyOf" in schema:
        return " or ".join(in_short(part) or KINDS.get(part.get("type", ""), "") for part in schema["anyOf"])
    if "const" in schema:
        return str(schema["const"])
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if "pattern" in schema and "title" in schema:
        return str(schema["title"])
    return bounds(schema, SIGNS)


def _limits(schema: Schema) -> tuple[float | None, bool, float | None, bool]:
    """Lower bound, whether it is open, upper bound, whether it is open; those of integers are closed."""
    low, high = schema.get("minimum"), schema.get("maximum")
    open_low, open_high = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if schema.get("type") == "integer":
        low = open_low + 1 if open_low is not None else low
        high = open_high - 1 if open_high is not None else high
        return low, False, high, False
    low_open, high_open = open_low is not None, open_high is not None
    return open_low if low_open else low, low_open, open_high if high_open else high, high_open


def _number(value: float | None) -> str:
    return str(int(value)) if value is not None and value == int(value) else str(value)
