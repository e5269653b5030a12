"""Weather: snow, fog, brightness and spatter."""

from __future__ import annotations

import cv2
import numpy as np

from tta_bench.corruptions.filters import blur_gaussian, blur_motion, plasma, zoom
from tta_bench.corruptions.shared import Constants, to_bytes, to_unit

VERSION = "1"

# flakes' mean, deviation, magnification and threshold, motion's radius and sigma, image's share
SNOW = Constants(
    small=(
        (0.1, 0.2, 1.0, 1.0, 8, 3.0, 1.0),
        (0.1, 0.2, 1.0, 0.6, 8, 3.0, 0.95),
        (0.1, 0.2, 1.0, 0.5, 10, 4.0, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4.0, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6.0, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12.0, 0.8),
    ),
    large=(
        (0.1, 0.3, 3.0, 1.0, 10, 4.0, 1.0),
        (0.1, 0.3, 3.0, 0.5, 10, 4.0, 0.8),
        (0.2, 0.3, 2.0, 0.5, 12, 4.0, 0.7),
        (0.55, 0.3, 4.0, 0.9, 12, 8.0, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8.0, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12.0, 0.55),
    ),
)
# amount, decay of the plasma
FOG = Constants(
    small=((0.0, 3.0), (0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75)),
    large=((0.0, 2.0), (1.5, 2.0), (2.0, 2.0), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4)),
)
BRIGHTNESS = Constants(small=(0.0, 0.05, 0.1, 0.15, 0.2, 0.3), large=(0.0, 0.1, 0.2, 0.3, 0.4, 0.5))
# mean and deviation of the liquid, its sigma, threshold, strength of water or sigma of mud, mud?
SPATTER = Constants(
    small=(
        (0.62, 0.1, 0.7, 0.7, 0.0, False),
        (0.62, 0.1, 0.7, 0.7, 0.5, False),
        (0.65, 0.1, 0.8, 0.7, 0.5, False),
        (0.65, 0.3, 1.0, 0.69, 0.5, False),
        (0.65, 0.1, 0.7, 0.69, 0.6, True),
        (0.65, 0.1, 0.5, 0.68, 0.6, True),
    ),
    large=(
        (0.65, 0.3, 4.0, 0.69, 0.0, False),
        (0.65, 0.3, 4.0, 0.69, 0.6, False),
        (0.65, 0.3, 3.0, 0.68, 0.6, False),
        (0.65, 0.3, 2.0, 0.68, 0.5, False),
        (0.65, 0.3, 1.0, 0.65, 1.5, True),
        (0.67, 0.4, 1.0, 0.65, 1.5, True),
    ),
)
WATER_RGB = np.array([175, 238, 238]) / 255
MUD_RGB = np.array([63, 42, 20]) / 255


def snow(image: np.ndarray, severity: float, rng: np.random.Generator) -> np.ndarray:
    """A whitened image under two layers of falling flakes."""
    mean, deviation, size, threshold, radius, sigma, share = SNOW.at(severity, image)
    (flakes,) = zoom(rng.normal(mean, deviation, image.shape[:2]), np.array([size]))
    flakes = to_bytes(np.where(flakes < threshold, 0, flakes))
    layer = np.rint(blur_motion(flakes, radius, sigma, rng.uniform(-135, -45)))[..., None] / 255
    clean = to_unit(image).astype(np.float32)
    grey = cv2.cvtColor(clean, cv2.COLOR_RGB2GRAY)
    whitened = share * clean + (1 - share) * np.maximum(clean, grey[..., None] * 1.5 + 0.5)
    return to_bytes(whitened + layer + layer[::-1, ::-1])


def fog(image: np.ndarray, severity: float, rng: np.random.Generator) -> np.ndarray:
    """Plasma added, then scaled back to the image's own maximum."""
    amount, decay = FOG.at(severity, image)
    height, width = image.shape[:2]
    clean = to_unit(image)
    mist = plasma(max(height, width), decay, rng)[:height, :width, None]
    peak = clean.max()
    return to_bytes((clean + amount * mist) * peak / (peak + amount))


def brightness(image: np.ndarray, severity: float, rng: np.random.Generator) -> np.ndarray:
    """Daylight: a constant added to the value in HSV."""
    hsv = cv2.cvtColor(to_unit(image).astype(np.float32), cv2.COLOR_RGB2HSV)
    hsv[..., 2] = np.clip(hsv[..., 2] + BRIGHTNESS.at(severity, image), 0, 1)
    return to_bytes(cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB))


def spatter(image: np.ndarray, severity: float, rng: np.random.Generator) -> np.ndarray:
    """Drops of water (severities 1–3) or mud (4, 5) on the lens."""
    mean, deviation, sigma, threshold, strength, mud = SPATTER.at(severity, image)
    liquid = blur_gaussian(rng.normal(mean, deviation, image.shape[:2]), sigma)
    liquid[liquid < threshold] = 0
    clean = to_unit(image)
    if not mud:
        return to_bytes(clean + strength * _water(liquid)[..., None] * WATER_RGB)
    cover = blur_gaussian((liquid > threshold).astype(float), strength)
    cover = np.where(cover < 0.8, 0, cover)[..., None]
    return to_bytes(clean * (1 - cover) + MUD_RGB * cover)


def _water(liquid: np.ndarray) -> np.ndarray:
    """How much light each drop throws, in [0, 1]: an embossed distance to the drops' edges."""
    drops = (liquid * 255).astype(np.uint8)  # values above 1 wrap around, in the published code too
    edges = cv2.distanceTransform(255 - cv2.Canny(drops, 50, 150), cv2.DIST_L2, 5)
    depth = cv2.equalizeHist(cv2.blur(np.minimum(edges, 20), (3, 3)).astype(np.uint8))
    emboss = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], np.float32)
    relief = cv2.blur(cv2.filter2D(depth, cv2.CV_8U, emboss), (3, 3))
    light = drops * relief.astype(np.float32)
    return light / max(light.max(), 1)
