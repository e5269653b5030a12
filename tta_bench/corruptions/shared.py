"""What every corruption needs: published constants, and conversion from bytes to [0, 1] and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

T = TypeVar("T")

SMALL_SIDE_PIXELS = 64


@dataclass(frozen=True)
class Constants(Generic[T]):
    """Hendrycks & Dietterich's constants for severities 1–5: of CIFAR-10-C and of ImageNet-C."""

    small: tuple[T, T, T, T, T]
    large: tuple[T, T, T, T, T]

    def at(self, severity: int, image: np.ndarray) -> T:
        """The constants for an image of this size at this severity."""
        if severity not in range(1, 6):
            raise ValueError(f"severity {severity} does not exist; use 1 to 5")
        levels = self.small if min(image.shape[:2]) <= SMALL_SIDE_PIXELS else self.large
        return levels[severity - 1]


def to_unit(image: np.ndarray) -> np.ndarray:
    """The image in [0, 1]."""
    return image / 255.0


def to_bytes(image: np.ndarray) -> np.ndarray:
    """An image in [0, 1] as uint8, truncated as the published sets are."""
    # Adding a thousandth of a grey level makes the result independent of the rounding of the CPU.
    return (np.clip(image, 0, 1) * 255 + 1e-3).astype(np.uint8)
