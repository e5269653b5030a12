"""Values of `stream` that are a word, or a mapping with one number: `reset` and `domain_order`.

They are kept as text: `{every: 1000}` as `every 1000`. `{cotta: all}` stands for all orders of CoTTA.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from tta_bench.streams.schedules.cotta_orders import COTTA_ORDERS

COTTA = "cotta "  # before the number of an order


def _reader(words: Sequence[str], name: str, low: int, high: int, *others: str) -> Callable[[Any], str]:
    """A function that checks such a value and returns it as text."""

    def read(value: Any) -> str:
        if isinstance(value, dict) and list(value) == [name]:
            value = f"{name} {value[name]}"
        if value in words:
            return str(value)
        found = re.fullmatch(rf"{name} (\d{{1,9}})", str(value))
        if found is None or not low <= int(found[1]) <= high:
            number = " or ".join([f"{low} to {high}" if high < 10**9 else f"at least {low}", *others])
            raise ValueError(f"it must be {', '.join(words)} or {{{name}: N}} with N {number}")
        return f"{name} {int(found[1])}"

    return read


def with_all_orders(values: Any) -> Any:
    """A list of domain orders in which the ten orders of CoTTA are in the place of `{cotta: all}`."""
    if not isinstance(values, list):
        return values
    ten = [f"{COTTA}{number}" for number in range(len(COTTA_ORDERS))]
    return [
        each for value in values for each in (ten if value in ({"cotta": "all"}, "cotta all") else [value])
    ]


def cotta_numbers(orders: Sequence[str]) -> list[int]:
    """The numbers of the orders of CoTTA among some domain orders."""
    return [int(each.removeprefix(COTTA)) for each in orders if each.startswith(COTTA)]


def batches_between(reset: str) -> float:
    """The number of batches from one reset to the next, where the reset says so; otherwise infinite."""
    name, _, number = reset.partition(" ")
    return 1 if name == "batch" else int(number) if name == "every" else math.inf


def _schema(words: Sequence[str], name: str, low: int, high: int, *others: str) -> WithJsonSchema:
    number: dict[str, Any] = {"type": "integer", "minimum": low, "maximum": high}
    number = {"anyOf": [{"enum": list(others)}, number]} if others else number
    mapping = {"type": "object", "properties": {name: number}, "required": [name]}
    return WithJsonSchema({"anyOf": [{"enum": list(words)}, mapping | {"additionalProperties": False}]})


_RESETS = (("never", "domain", "batch"), "every", 1, 10**9)
_ORDERS = (("file", "per-seed", "per-round"), "cotta", 0, len(COTTA_ORDERS) - 1, "all")
Reset = Annotated[str, BeforeValidator(_reader(*_RESETS)), _schema(*_RESETS)]
DomainOrder = Annotated[str, BeforeValidator(_reader(*_ORDERS)), _schema(*_ORDERS)]
