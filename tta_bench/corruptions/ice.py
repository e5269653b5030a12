"""Sheets of ice, made from noise, with the mean, the spread and the spectrum of frost photographs.

Needles grow in three directions where a cloud lets them. Their shapes are kept, which makes the sheet look
like frost. Their power is replaced, so that it falls with the frequency as in a photograph, and so are their
values: of the photographs only mean and spread are known, so the values get a normal distribution.
"""

from __future__ import annotations

import cv2
import numpy as np
from scipy.special import ndtri

SHEETS = 5  # as many as the photographs that the original draws from
SIDE_PIXELS = 512
MEAN_LEVEL = 160.0
SPREAD_LEVELS = 24.0  # within a sheet, and within its crops of 224 pixels
# Power falls with this power of the frequency. Photographs of nature have 1.6 to 3 (Tolhurst, Tadmor and
# Chao 1992, "Amplitude spectra of natural images"), those with much fine detail the least.
POWER_EXPONENT = 1.6

# length and width of the noise in pixels
LARGE_NEEDLE, SMALL_NEEDLE, PATCH = (90.0, 7.0), (30.0, 2.5), (70.0, 70.0)
LARGE_CLOUD, SMALL_CLOUD = (80.0, 80.0), (10.0, 10.0)
BEND_PIXELS = 4.0
SHADE_RGB = np.array([-40.0, -2.0, 42.0])  # added to black: thin ice is blue, thick ice is white


def sheets() -> tuple[np.ndarray, ...]:
    """The same sheets in every process, uint8 [SIDE_PIXELS, SIDE_PIXELS, 3], periodic."""
    return tuple(_sheet(np.random.default_rng(number)) for number in range(SHEETS))


def _sheet(rng: np.random.Generator) -> np.ndarray:
    grey = MEAN_LEVEL + SPREAD_LEVELS * _as_photograph(_crystals(rng))[..., None]
    return np.clip(np.rint(grey + (1 - grey / 255) * SHADE_RGB), 0, 255).astype(np.uint8)


def _as_photograph(pattern: np.ndarray) -> np.ndarray:
    """The pattern with the power of a photograph and values of a standard normal distribution."""
    for _ in range(3):  # each step spoils a little of what the other has reached
        pattern = _with_normal_values(_with_power_law(pattern))
    return pattern


def _with_power_law(pattern: np.ndarray) -> np.ndarray:
    """The pattern with another power at each frequency, the same on average over the directions."""
    side = len(pattern)
    radius = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)) * side
    ring = np.rint(radius).astype(int)
    waves = np.fft.rfft2(pattern - pattern.mean())
    power = np.bincount(ring.ravel(), (np.abs(waves) ** 2).ravel()) / np.bincount(ring.ravel())
    amplitude = np.maximum(radius, 1) ** (-POWER_EXPONENT / 2)
    return np.fft.irfft2(waves * amplitude / np.sqrt(np.maximum(power, 1e-12))[ring], pattern.shape)


def _with_normal_values(pattern: np.ndarray) -> np.ndarray:
    """The pattern with its values replaced, in their order, by those of a standard normal distribution."""
    rank = np.empty(pattern.size)
    rank[np.argsort(pattern, axis=None, kind="stable")] = np.arange(pattern.size) + 0.5
    return ndtri(rank / pattern.size).reshape(pattern.shape)


def _crystals(rng: np.random.Generator) -> np.ndarray:
    """Needles of ice, thicker where they grow well, [SIDE_PIXELS, SIDE_PIXELS]."""
    directions = rng.uniform(0, np.pi) + rng.normal([0, 1, 2, 0, 1, 2], 0.15)  # about 60° apart
    sizes = np.array([LARGE_NEEDLE] * 3 + [SMALL_NEEDLE] * 3 + [PATCH] * 3 + [LARGE_CLOUD, SMALL_CLOUD])
    fields = _fields(np.concatenate([directions, np.zeros(5)]), sizes, rng)
    large, small = _needles(fields[:6], fields[6:9])
    growth = 1.4 * fields[9] + 0.8 * fields[10] + 2 * large - 0.6
    return _bend((0.3 + 0.4 * large + 0.6 * small) / (1 + np.exp(-growth)), fields[6:8] * BEND_PIXELS)


def _needles(fields: np.ndarray, patches: np.ndarray) -> np.ndarray:
    """Large and small needles, [2, H, W]: where noise changes sign; each patch has a direction."""
    ridges = np.exp(-2 * np.abs(fields)).reshape(2, *patches.shape)
    rule = np.exp(3 * patches)
    return (ridges * rule / rule.sum(0)).sum(1)


def _fields(angles: np.ndarray, size_pixels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Noise of mean 0 and deviation 1, each with its own direction, length and width: [N, H, W]."""
    shape = (SIDE_PIXELS, SIDE_PIXELS)
    fy, fx = np.fft.fftfreq(shape[0])[:, None], np.fft.rfftfreq(shape[1])
    cos, sin = np.cos(angles)[:, None, None], np.sin(angles)[:, None, None]
    length, width = size_pixels.T[..., None, None]
    along, across = (fx * cos + fy * sin) * length, (fy * cos - fx * sin) * width
    spectrum = np.exp(np.maximum(-5 * (along**2 + across**2), -40))  # denormal numbers are slow
    spectrum[:, 0, 0] = 0
    real, imaginary = rng.uniform(-1, 1, (2, *spectrum.shape))
    fields = np.fft.irfft2((real + 1j * imaginary) * spectrum, shape)
    return fields / fields.std((1, 2), keepdims=True)


def _bend(image: np.ndarray, flow: np.ndarray) -> np.ndarray:
    ys, xs = (np.indices(image.shape) + flow).astype(np.float32)
    return cv2.remap(image.astype(np.float32), xs, ys, cv2.INTER_LINEAR, borderMode=cv2.BORDER_WRAP)
