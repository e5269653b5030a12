"""Values of `stream` that are a word, or a mapping with one number: `reset` and `domain_order`.

They are kept as text: `{every: 1000}` as `every 1000`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema


def _reader(words: Sequence[str], name: str, low: int, high: int) -> Callable[[Any], str]:
    """A function that checks such a value and returns it as text."""

    def read(value: Any) -> str:
        if isinstance(value, dict) and list(value) == [name]:
            value = f"{name} {value[name]}"
        if value in words:
            return str(value)
        found = re.fullmatch(rf"{name} (\d{{1,9}})", str(value))
        if found is None or not low <= int(found[1]) <= high:
            number = f"{low} to {high}" if high < 10**9 else f"at least {low}"
            raise ValueError(f"it must be {', '.join(words)} or {{{name}: N}} with N {number}")
        return f"{name} {int(found[1])}"

    return read


def _schema(words: Sequence[str], name: str, low: int, high: int) -> WithJsonSchema:
    number = {"type": "integer", "minimum": low, "maximum": high}
    mapping = {"type": "object", "properties": {name: number}, "required": [name]}
    return WithJsonSchema({"anyOf": [{"enum": list(words)}, mapping | {"additionalProperties": False}]})


_RESETS = (("never", "domain", "batch"), "every", 1, 10**9)
_ORDERS = (("file", "per-seed", "per-round"), "cotta", 0, 9)
Reset = Annotated[str, BeforeValidator(_reader(*_RESETS)), _schema(*_RESETS)]
DomainOrder = Annotated[str, BeforeValidator(_reader(*_ORDERS)), _schema(*_ORDERS)]
