"""The search space that a method declares for its parameters; `tta-bench tune` searches it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

DIGITS = 3  # significant digits of a sampled number; more do not change a result


class Space(Protocol):
    """The values that one parameter may take."""

    def sample(self, rng: np.random.Generator) -> Any:
        """A random value."""

    def share(self, value: Any) -> float | None:
        """The position of a number in its range, from 0 to 1; None if the values have no order."""


Spaces = Mapping[str, Space]


def spaces(**of: Space) -> Spaces:
    """The value of a method's `search_space`: a space for each parameter to search."""
    return MappingProxyType(of)


@dataclass(frozen=True)
class NumberRange:
    """Numbers from low to high."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"the range from {self.low} to {self.high} is empty.")


class Uniform(NumberRange):
    """Numbers from low to high, uniformly distributed."""

    def sample(self, rng: np.random.Generator) -> float:
        return _rounded(rng.uniform(self.low, self.high))

    def share(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low)


class Log(NumberRange):
    """Numbers from low to high, uniformly distributed on a logarithmic scale."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low <= 0:
            raise ValueError("Log: low must be positive.")

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
    """Both ends of a range, or all values of a choice; empty for other spaces."""
    if isinstance(space, Choice):
        return space.values
    return (space.low, space.high) if isinstance(space, NumberRange) else ()


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
