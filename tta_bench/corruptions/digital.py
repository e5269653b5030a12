"""Digital: contrast, elastic transform, pixelate, JPEG compression and saturate."""

from __future__ import annotations

from io import BytesIO

import cv2
import numpy as np
from PIL import Image
from scipy.ndimage import map_coordinates

from tta_bench.corruptions.filters import blur_gaussian
from tta_bench.corruptions.shared import Constants, to_bytes, to_unit

VERSION = "1"

CONTRAST = Constants(small=(1.0, 0.75, 0.5, 0.4, 0.3, 0.15), large=(1.0, 0.4, 0.3, 0.2, 0.1, 0.05))
# shift, its smoothness, corners' jitter; in units of the image side (244 is in the published code)
ELASTIC_UNIT_PIXELS = Constants(small=(32,) * 6, large=(244,) * 6)
ELASTIC = Constants(
    small=(
        (0, 0, 0.0),
        (0, 0, 0.08),
        (0.05, 0.2, 0.07),
        (0.08, 0.06, 0.06),
        (0.1, 0.04, 0.05),
        (0.1, 0.03, 0.03),
    ),
    large=(
        (0.0, 0.7, 0.0),
        (2, 0.7, 0.1),
        (2, 0.08, 0.2),
        (0.05, 0.01, 0.02),
        (0.07, 0.01, 0.02),
        (0.12, 0.01, 0.02),
    ),
)
PIXELATE = Constants(small=(1.0, 0.95, 0.9, 0.85, 0.75, 0.65), large=(1.0, 0.6, 0.5, 0.4, 0.3, 0.25))
JPEG_QUALITY = Constants(small=(85, 80, 65, 58, 50, 40), large=(85, 25, 18, 15, 10, 7))
# factor, offset of the saturation
SATURATE = Constants(
    small=((1.0, 0.0), (0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2)),
    large=((1.0, 0.0), (0.3, 0.0), (0.1, 0.0), (2.0, 0.0), (5.0, 0.1), (20.0, 0.2)),
)


def contrast(image: np.ndarray, severity: float, rng: np.random.Generator) -> np.ndarray:
    """Values drawn towards the mean of their channel."""
    clean = to_unit(image)
    mean = clean.mean((0, 1))
    return to_bytes((clean - mean) * CONTRAST.at(severity, image) + mean)


def elastic_transform(image: np.ndarray, severity: float, rng: np.random.Generator) -> np.ndarray:
    """A random affine map, then small regions stretched or contracted."""
    unit = ELASTIC_UNIT_PIXELS.at(severity, image)
    shift, smooth, jitter = (unit * value for value in ELASTIC.at(severity, image))
    warped = _affine(to_unit(image).astype(np.float32), jitter, rng)
    noise = rng.uniform(-1, 1, (2, *image.shape[:2]))
    flow = [blur_gaussian(n, smooth, reach=3, border=cv2.BORDER_REFLECT) * shift for n in noise]
    at = np.indices(image.shape[:2]) + flow
    channels = [map_coordinates(c, at, order=1, mode="reflect") for c in np.moveaxis(warped, 2, 0)]
    return to_bytes(np.stack(channels, 2))


def _affine(image: np.ndarray, jitter: float, rng: np.random.Generator) -> np.ndarray:
    height, width = image.shape[:2]
    centre = np.array([height // 2, width // 2], np.float32)
    reach = min(height, width) // 3
    corners = (centre + reach * np.array([[1, 1], [1, -1], [-1, -1]])).astype(np.float32)
    moved = corners + rng.uniform(-jitter, jitter, corners.shape).astype(np.float32)
    matrix = cv2.getAffineTransform(corners, moved)
    return cv2.warpAffine(image, matrix, (width, height), borderMode=cv2.BORDER_REFLECT_101)


def pixelate(image: np.ndarray, severity: float, rng: np.random.Generator) -> np.ndarray:
    """A low-resolution image, enlarged again; both by box filters."""
    share = PIXELATE.at(severity, image)
    height, width = image.shape[:2]
    few = (int(width * share), int(height * share))
    small = Image.fromarray(image).resize(few, Image.Resampling.BOX)
    return np.asarray(small.resize((width, height), Image.Resampling.BOX))


def jpeg_compression(image: np.ndarray, severity: float, rng: np.random.Generator) -> np.ndarray:
    """Lossy compression, with Pillow's default subsampling of colour."""
    buffer = BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=JPEG_QUALITY.at(severity, image))
    return np.asarray(Image.open(buffer))


def saturate(image: np.ndarray, severity: float, rng: np.random.Generator) -> np.ndarray:
    """Colours paler (severities 1, 2) or stronger (3–5)."""
    factor, offset = SATURATE.at(severity, image)
    hsv = cv2.cvtColor(to_unit(image).astype(np.float32), cv2.COLOR_RGB2HSV)
    hsv[..., 1] = np.clip(hsv[..., 1] * factor + offset, 0, 1)
    return to_bytes(cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB))
