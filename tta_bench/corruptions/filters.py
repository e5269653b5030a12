"""Gaussian and motion blur, zoom and plasma, as in the original corruptions."""

from __future__ import annotations

from collections.abc import Iterator

import cv2
import numpy as np


def blur_gaussian(
    image: np.ndarray, sigma: float, reach: float = 4.0, border: int = cv2.BORDER_REPLICATE
) -> np.ndarray:
    """Gaussian blur cut off at `reach` sigmas, equal to that of scipy.ndimage and scikit-image."""
    radius = int(reach * sigma + 0.5)
    if radius == 0:
        return image
    taps = np.arange(-radius, radius + 1)
    weights = np.exp(-0.5 * (taps / sigma) ** 2)
    weights /= weights.sum()
    return cv2.sepFilter2D(image, -1, weights, weights, borderType=border)


def blur_motion(image: np.ndarray, radius: int, sigma: float, degrees: float) -> np.ndarray:
    """ImageMagick's motion blur: half a Gaussian, 2·radius + 1 whole pixels along a ray."""
    taps = np.arange(2 * radius + 1)
    weights = np.exp(-(taps**2) / (2 * sigma**2))
    weights /= weights.sum()
    angle = np.deg2rad(degrees)
    xs = np.ceil(taps * np.cos(angle) - 0.5).astype(int)
    ys = np.ceil(taps * np.sin(angle) - 0.5).astype(int)
    height, width = image.shape[:2]
    rim = 2 * radius
    padded = cv2.copyMakeBorder(image, rim, rim, rim, rim, cv2.BORDER_REPLICATE)
    blurred = np.zeros(image.shape)
    for x, y, weight in zip(xs + rim, ys + rim, weights, strict=True):
        blurred += weight * padded[y : y + height, x : x + width]
    return blurred


def zoom(image: np.ndarray, factors: np.ndarray) -> Iterator[np.ndarray]:
    """The image magnified about its centre by each factor in turn, at its own size."""
    rows = _zoom_positions(image.shape[0], factors)
    columns = _zoom_positions(image.shape[1], factors)
    for row, column in zip(rows, columns, strict=True):
        yield _blend(_blend(image, 0, *row), 1, *column)


def _blend(image: np.ndarray, axis: int, low: np.ndarray, high: np.ndarray, share: np.ndarray) -> np.ndarray:
    near = image.take(low, axis)
    blended = image.take(high, axis)
    blended -= near
    blended *= share.astype(image.dtype).reshape((-1,) + (1,) * (image.ndim - 1 - axis))
    blended += near
    return blended


def _zoom_positions(side: int, factors: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """For each factor, where output pixels lie: both neighbours and the second one's share."""
    # The original crops ceil(side / factor) pixels, spreads them by scipy.ndimage.zoom (whose first
    # and last samples are the crop's first and last) and trims the rest evenly.
    crop = np.ceil(side / factors)
    spread = np.rint(crop * factors)
    start = (side - crop) // 2
    trim = (spread - side) // 2
    step = (crop - 1) / np.maximum(spread - 1, 1)
    position = start[:, None] + (trim[:, None] + np.arange(side)) * step[:, None]
    low = np.minimum(position.astype(int), side - 1)
    return zip(low, np.minimum(low + 1, side - 1), position - low, strict=True)


def plasma(side: int, decay: float, rng: np.random.Generator) -> np.ndarray:
    """A diamond-square height map in [0, 1], periodic, of the next power of two above `side`."""
    size = 1 << (side - 1).bit_length()
    heights = np.zeros((size, size))
    step, wibble = size, 100.0

    def settle(around: np.ndarray) -> np.ndarray:
        # The amplitude enters squared, in the published code too.
        return around / 4 + wibble * rng.uniform(-wibble, wibble, around.shape)

    while step >= 2:
        half = step // 2
        corners = heights[::step, ::step]
        across = corners + np.roll(corners, -1, 1)
        down = corners + np.roll(corners, -1, 0)
        centres = settle(across + np.roll(across, -1, 0))
        heights[half::step, half::step] = centres
        heights[::step, half::step] = settle(across + centres + np.roll(centres, 1, 0))
        heights[half::step, ::step] = settle(down + centres + np.roll(centres, 1, 1))
        step, wibble = half, wibble / decay
    heights -= heights.min()
    return heights / heights.max()
