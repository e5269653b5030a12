"""Corruptions at severities between whole numbers, and one corruption after another.

Their names say all: `fog@2.5` is fog at severity 2.5, `fog@3.75+snow@1.25` is fog and then snow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from tta_bench.api import CorruptionFunction  # avoids importing torch at run time

AT, THEN = "@", "+"


class Part(NamedTuple):
    """One corruption of an image, and its severity; a whole number is an int, as in the names of domains."""

    name: str
    severity: float

    def __str__(self) -> str:
        return f"{self.name}{AT}{self.severity:g}"


def composed_name(parts: Sequence[Part]) -> str:
    """The name of these corruptions, one after the other; parts of severity 0 change nothing."""
    return THEN.join(str(part) for part in parts if part.severity)


def parts_of(name: str) -> tuple[Part, ...]:
    """The corruptions that a name consists of; none if it is the name of one corruption."""
    if AT not in name:
        return ()
    try:
        named = [text.split(AT) for text in name.split(THEN)]
        return tuple(Part(corruption, _number(severity)) for corruption, severity in named)
    except ValueError:
        return ()


def plain_names(name: str) -> tuple[str, ...]:
    """The names of the corruptions that a name consists of."""
    return tuple(part.name for part in parts_of(name)) or (name,)


@dataclass(frozen=True)
class Composed:
    """Corruptions to apply one after the other, with their functions."""

    steps: tuple[tuple[Part, CorruptionFunction], ...]

    def __call__(self, image: np.ndarray, severity: float, rng: np.random.Generator) -> np.ndarray:
        """The image, corrupted; the severities are those of the parts."""
        for part, function in self.steps:
            image = function(image, part.severity, rng)
        return image


def steps_of(
    name: str, function: CorruptionFunction, severity: float
) -> tuple[tuple[Part, CorruptionFunction], ...]:
    """The corruptions that `function` consists of, with their severities."""
    return function.steps if isinstance(function, Composed) else ((Part(name, severity), function),)


def _number(text: str) -> float:
    value = float(text)
    return int(value) if value.is_integer() else value
