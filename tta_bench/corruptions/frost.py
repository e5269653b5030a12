"""Frost: random crops of frost photographs, or of sheets of ice made here, mixed into the image."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cache, cached_property

import cv2
import numpy as np

from tta_bench.corruptions.ice import sheets
from tta_bench.corruptions.shared import SMALL_SIDE_PIXELS, Constants, to_bytes, to_unit
from tta_bench.errors import UserError

VERSION = "2"  # 1: ice of mean 123 and spread 41, smooth on images of 32 pixels

# shares of image and frost
SHARES = Constants(
    small=((1.0, 0.0), (1.0, 0.2), (1.0, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
    large=((1.0, 0.0), (1.0, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
)
# For small images the original shrinks its photographs by bilinear interpolation without a low-pass filter,
# which at this factor takes every fifth pixel: fine structure stays, as noise.
SMALL_SCALE = 0.2
_MAKING = threading.Lock()


@dataclass(frozen=True, eq=False)
class Frost:
    """The corruption, with these photographs, each uint8 [H, W, 3] in RGB."""

    photographs: tuple[np.ndarray, ...]
    periodic: bool = False  # they continue at the opposite edge, so that they can be tiled

    def __call__(self, image: np.ndarray, severity: float, rng: np.random.Generator) -> np.ndarray:
        """The image, corrupted."""
        image_share, frost_share = SHARES.at(severity, image)
        photographs = self.scaled(min(image.shape[:2]))
        crop = self._crop(photographs[rng.integers(len(photographs))], image.shape[:2], rng)
        return to_bytes(image_share * to_unit(image) + frost_share * to_unit(crop))

    def scaled(self, side: int) -> tuple[np.ndarray, ...]:
        """The photographs as they are used for images of this side."""
        return self._small if side <= SMALL_SIDE_PIXELS else self.photographs

    def _crop(self, photograph: np.ndarray, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
        if self.periodic:
            rims = [(0, max(0, size - have)) for size, have in zip(shape, photograph.shape, strict=False)]
            photograph = np.pad(photograph, (*rims, (0, 0)), mode="wrap")
        (height, width), (rows, columns) = shape, photograph.shape[:2]
        if height > rows or width > columns:
            raise UserError(
                f"frost: a photograph has {columns} x {rows} pixels where it is used, and the image "
                f"{width} x {height}. Give larger photographs in data.frost_images, or none."
            )
        top, left = rng.integers(rows - height + 1), rng.integers(columns - width + 1)
        return photograph[top : top + height, left : left + width]

    @cached_property
    def _small(self) -> tuple[np.ndarray, ...]:
        return tuple(cv2.resize(each, (0, 0), fx=SMALL_SCALE, fy=SMALL_SCALE) for each in self.photographs)


def frost(image: np.ndarray, severity: float, rng: np.random.Generator) -> np.ndarray:
    """Frost on a window; the original photographs cannot be distributed, so the ice is generated."""
    return made_here()(image, severity, rng)


def made_here() -> Frost:
    """Frost with generated sheets of ice, made once per process (thread-safe)."""
    with _MAKING:
        return _made_here()


@cache
def _made_here() -> Frost:
    return Frost(sheets(), periodic=True)
