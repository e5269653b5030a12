"""What every corruption needs: published constants, and conversion from bytes to [0, 1] and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

T = TypeVar("T")

SMALL_SIDE_PIXELS = 64
STRONGEST = 5


@dataclass(frozen=True)
class Constants(Generic[T]):
    """Hendrycks & Dietterich's constants for severities 1–5: of CIFAR-10-C and of ImageNet-C.

    The first entry, for severity 0, changes nothing or next to nothing. It is used for severities below 1.
    """

    small: tuple[T, T, T, T, T, T]
    large: tuple[T, T, T, T, T, T]
    reciprocal: bool = False  # between whole severities, 1/constant is interpolated

    def at(self, severity: float, image: np.ndarray) -> T:
        """The constants for an image of this size at this severity; linear between whole severities."""
        if not 0 < severity <= STRONGEST:
            raise ValueError(f"severity {severity} does not exist; use 1 to 5")
        levels = self.small if min(image.shape[:2]) <= SMALL_SIDE_PIXELS else self.large
        below = int(severity)
        share = severity - below
        if share == 0:
            return levels[below]
        low: Any = levels[below]
        high: Any = levels[below + 1]
        return 1 / _between(1 / low, 1 / high, share) if self.reciprocal else _between(low, high, share)


def to_unit(image: np.ndarray) -> np.ndarray:
    """The image in [0, 1]."""
    return image / 255.0


def to_bytes(image: np.ndarray) -> np.ndarray:
    """An image in [0, 1] as uint8, truncated as the published sets are."""
    # Adding a thousandth of a grey level makes the result independent of the rounding of the CPU.
    return (np.clip(image, 0, 1) * 255 + 1e-3).astype(np.uint8)


def _between(low: Any, high: Any, share: float) -> Any:
    """Constants between two severities: whole numbers are rounded; where a flag differs, the nearer count."""
    if isinstance(low, tuple):
        if any(isinstance(a, bool) and a != b for a, b in zip(low, high, strict=True)):
            return high if share >= 0.5 else low
        return tuple(_between(a, b, share) for a, b in zip(low, high, strict=True))
    if isinstance(low, bool):
        return low
    mixed = (1 - share) * low + share * high
    return round(mixed) if isinstance(low, int) and isinstance(high, int) else mixed
