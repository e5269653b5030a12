"""Noise: Gaussian, shot, impulse and speckle."""

from __future__ import annotations

from math import inf

import numpy as np

from tta_bench.corruptions.shared import Constants, to_bytes, to_unit

VERSION = "1"

GAUSSIAN = Constants(small=(0.0, 0.04, 0.06, 0.08, 0.09, 0.10), large=(0.0, 0.08, 0.12, 0.18, 0.26, 0.38))
# photons; the variance of the noise is 1/photons, which is what is interpolated
SHOT = Constants(small=(inf, 500, 250, 100, 75, 50), large=(inf, 60, 25, 12, 5, 3), reciprocal=True)
IMPULSE = Constants(small=(0.0, 0.01, 0.02, 0.03, 0.05, 0.07), large=(0.0, 0.03, 0.06, 0.09, 0.17, 0.27))
SPECKLE = Constants(small=(0.0, 0.06, 0.10, 0.12, 0.16, 0.20), large=(0.0, 0.15, 0.20, 0.35, 0.45, 0.60))


def gaussian_noise(image: np.ndarray, severity: float, rng: np.random.Generator) -> np.ndarray:
    """Sensor noise in low light: normal, the same for every value."""
    return to_bytes(to_unit(image) + rng.normal(0, GAUSSIAN.at(severity, image), image.shape))


def shot_noise(image: np.ndarray, severity: float, rng: np.random.Generator) -> np.ndarray:
    """Electronic noise of discrete light: Poisson."""
    photons = SHOT.at(severity, image)
    return to_bytes(rng.poisson(to_unit(image) * photons) / photons)


def impulse_noise(image: np.ndarray, severity: float, rng: np.random.Generator) -> np.ndarray:
    """Salt and pepper in equal parts, on each channel by itself."""
    hit = rng.random(image.shape) < IMPULSE.at(severity, image)
    salt = rng.random(image.shape) < 0.5
    return np.where(hit, np.where(salt, np.uint8(255), np.uint8(0)), image)


def speckle_noise(image: np.ndarray, severity: float, rng: np.random.Generator) -> np.ndarray:
    """Normal noise in proportion to the value it falls on."""
    clean = to_unit(image)
    return to_bytes(clean + clean * rng.normal(0, SPECKLE.at(severity, image), image.shape))
