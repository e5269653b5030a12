"""Blur: defocus, glass, motion, zoom and Gaussian."""

from __future__ import annotations

import cv2
import numpy as np

from tta_bench.corruptions.filters import blur_gaussian, blur_motion, zoom
from tta_bench.corruptions.shared import Constants, to_bytes, to_unit

VERSION = "1"

# radius, sigma of the anti-aliasing
DEFOCUS = Constants(
    small=((0.0, 0.0), (0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1)),
    large=((0.0, 0.0), (3.0, 0.1), (4.0, 0.5), (6.0, 0.5), (8.0, 0.5), (10.0, 0.5)),
)
# sigma, farthest pixel, passes
GLASS = Constants(
    small=((0.0, 1, 0), (0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    large=((0.0, 1, 0), (0.7, 1, 2), (0.9, 2, 1), (1.0, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
)
# radius, sigma
MOTION = Constants(
    small=((0, 0.0), (6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5)),
    large=((0, 0.0), (10, 3.0), (15, 5.0), (15, 8.0), (15, 12.0), (20, 15.0)),
)
# end and step for `np.arange` from 1 on; its rounding decides on the last factor
ZOOM = Constants(
    small=((1.0, 0.01), (1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
    large=((1.0, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
)
GAUSSIAN = Constants(small=(0.0, 0.4, 0.6, 0.7, 0.8, 1.0), large=(0.0, 1.0, 2.0, 3.0, 4.0, 6.0))


def defocus_blur(image: np.ndarray, severity: float, rng: np.random.Generator) -> np.ndarray:
    """An image out of focus: averaged over a disk."""
    radius, alias_sigma = DEFOCUS.at(severity, image)
    return to_bytes(cv2.filter2D(to_unit(image), -1, _disk(radius, alias_sigma)))


def _disk(radius: float, alias_sigma: float) -> np.ndarray:
    window = max(8, int(radius))
    taps = np.arange(-window, window + 1)
    disk = (taps**2 + taps[:, None] ** 2 <= radius**2).astype(np.float32)
    side = 3 if radius <= 8 else 5
    smooth = cv2.GaussianBlur(disk / disk.sum(), (side, side), sigmaX=alias_sigma)
    empty = max(0, window - int(radius) - side // 2)
    return smooth[empty : len(taps) - empty, empty : len(taps) - empty]


def glass_blur(image: np.ndarray, severity: float, rng: np.random.Generator) -> np.ndarray:
    """Frosted glass: pixels replaced by near ones, between two Gaussian blurs."""
    sigma, farthest, passes = GLASS.at(severity, image)
    blurred = to_bytes(blur_gaussian(to_unit(image), sigma))
    for _ in range(passes):
        source = _scatter(image.shape[0], image.shape[1], farthest, rng)
        blurred = blurred.reshape(-1, image.shape[2])[source].reshape(image.shape)
    return to_bytes(blur_gaussian(to_unit(blurred), sigma))


def _scatter(height: int, width: int, farthest: int, rng: np.random.Generator) -> np.ndarray:
    """For each pixel, in flat order, the pixel it takes its value from.

    The published loop goes from the last pixel to the first and means to swap each with a random
    neighbour; as it swaps views of one array, it copies the neighbour instead. A neighbour that
    comes later in flat order has by then been replaced itself, so its source is followed: all
    chains at once, doubling the stride until none moves, which gives what the loop gives.
    """
    pixels = np.arange(height * width)
    rows = slice(farthest + 1, height - farthest + 1)
    columns = slice(farthest + 1, width - farthest + 1)
    replaced = pixels.reshape(height, width)[rows, columns]
    dx, dy = rng.integers(-farthest, farthest, (2, *replaced.shape))
    source, is_replaced = pixels.copy(), np.zeros(pixels.shape, bool)
    source[replaced] += dy * width + dx
    is_replaced[replaced] = True
    follow = np.where((source > pixels) & is_replaced[source], source, pixels)
    while not np.array_equal(further := follow[follow], follow):
        follow = further
    return source[follow]


def motion_blur(image: np.ndarray, severity: float, rng: np.random.Generator) -> np.ndarray:
    """A camera that moves quickly, at up to 45° from the horizontal."""
    radius, sigma = MOTION.at(severity, image)
    blurred = blur_motion(image, radius, sigma, rng.uniform(-45, 45))
    return np.rint(blurred).astype(np.uint8)  # ImageMagick rounds


def zoom_blur(image: np.ndarray, severity: float, rng: np.random.Generator) -> np.ndarray:
    """A camera that moves towards the object: the mean over growing magnifications."""
    end, step = ZOOM.at(severity, image)
    factors = np.arange(1, end, step)
    clean = to_unit(image).astype(np.float32)
    return to_bytes(sum(zoom(clean, factors), start=clean) / (len(factors) + 1))


def gaussian_blur(image: np.ndarray, severity: float, rng: np.random.Generator) -> np.ndarray:
    """A plain Gaussian blur."""
    return to_bytes(blur_gaussian(to_unit(image), GAUSSIAN.at(severity, image)))
