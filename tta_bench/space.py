"""Where the good parameters of a method may lie, as it declares; not a word on who searches, or how."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

DIGITS = 3  # significant ones of a sampled number: no result hangs on more


class Space(Protocol):
    """The values that one parameter may take."""

    def sample(self, rng: np.random.Generator) -> Any:
        """One of them, by chance."""

    def share(self, value: Any) -> float | None:
        """How far up its range a number lies, from 0 to 1; None where values have no order."""


Spaces = Mapping[str, Space]


def spaces(**of: Space) -> Spaces:
    """What a method declares as its `search_space`: a space for each of some of its parameters."""
    return MappingProxyType(of)


@dataclass(frozen=True)
class Uniform:
    """Numbers from low to high, all alike."""

    low: float
    high: float

    def __post_init__(self) -> None:
        _check_order(self.low, self.high)

    def sample(self, rng: np.random.Generator) -> float:
        return _rounded(rng.uniform(self.low, self.high))

    def share(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Log:
    """Numbers from low to high, all orders of magnitude alike."""

    low: float
    high: float

    def __post_init__(self) -> None:
        _check_order(self.low, self.high)
        if self.low <= 0:
            raise ValueError("Log: low must be positive, as 0 has no order of magnitude.")

    def sample(self, rng: np.random.Generator) -> float:
        return _rounded(math.exp(rng.uniform(math.log(self.low), math.log(self.high))))

    def share(self, value: float) -> float:
        return math.log(value / self.low) / math.log(self.high / self.low) if value > 0 else 0.0


class Choice:
    """One of several values."""

    def __init__(self, *values: Any) -> None:
        if len(values) < 2:
            raise ValueError("Choice: give at least two values.")
        self.values = values

    def sample(self, rng: np.random.Generator) -> Any:
        return self.values[rng.integers(len(self.values))]

    def share(self, value: Any) -> None:
        return None


def ends(space: Space) -> tuple[Any, ...]:
    """Both ends of a range, all values of a choice; nothing of a space of another kind."""
    if isinstance(space, Choice):
        return space.values
    return (space.low, space.high) if isinstance(space, (Uniform, Log)) else ()


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _check_order(low: float, high: float) -> None:
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"from {low} to {high} there is nothing to search.")
