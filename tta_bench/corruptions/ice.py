"""Frost on a window, made from noise: needles in three directions where a cloud lets them grow."""

from __future__ import annotations

import cv2
import numpy as np

# length and width of the noise in pixels at grain 1, which suits an image of 224 pixels
LARGE_NEEDLE, SMALL_NEEDLE, PATCH = (90.0, 7.0), (30.0, 2.5), (70.0, 70.0)
LARGE_CLOUD, SMALL_CLOUD = (80.0, 80.0), (10.0, 10.0)
FINEST_PIXELS = 1.7  # thinner needles would be mere noise
BEND_PIXELS = 4.0
DARK_RGB, LIGHT_RGB = np.array([0.14, 0.22, 0.33]), np.array([0.93, 0.97, 1.0])


def ice(shape: tuple[int, int], grain: float, rng: np.random.Generator) -> np.ndarray:
    """RGB ice in [0, 1] whose features are scaled by `grain`."""
    directions = rng.uniform(0, np.pi) + rng.normal([0, 1, 2, 0, 1, 2], 0.15)  # about 60° apart
    sizes = np.array([LARGE_NEEDLE] * 3 + [SMALL_NEEDLE] * 3 + [PATCH] * 3 + [LARGE_CLOUD, SMALL_CLOUD])
    angles = np.concatenate([directions, np.zeros(5)])
    fields = _fields(shape, angles, np.maximum(grain * sizes, FINEST_PIXELS), rng)
    large, small = _needles(fields[:6], fields[6:9])
    growth = 1.4 * fields[9] + 0.8 * fields[10] + 2 * large - 0.6 + rng.normal(0, 0.4)
    light = (0.3 + 0.4 * large + 0.6 * small) / (1 + np.exp(-growth))
    bent = np.clip(_bend(light, fields[6:8] * BEND_PIXELS * grain), 0, 1)
    return DARK_RGB + (LIGHT_RGB - DARK_RGB) * bent[..., None]


def _needles(fields: np.ndarray, patches: np.ndarray) -> np.ndarray:
    """Large and small needles, [2, H, W]: where noise changes sign; each patch has a direction."""
    ridges = np.exp(-2 * np.abs(fields)).reshape(2, *patches.shape)
    rule = np.exp(3 * patches)
    return (ridges * rule / rule.sum(0)).sum(1)


def _fields(
    shape: tuple[int, int], angles: np.ndarray, size_pixels: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Noise of mean 0 and deviation 1, each with its own direction, length and width: [N, H, W]."""
    fy, fx = np.fft.fftfreq(shape[0])[:, None], np.fft.rfftfreq(shape[1])
    cos, sin = np.cos(angles)[:, None, None], np.sin(angles)[:, None, None]
    length, width = size_pixels.T[..., None, None]
    along, across = (fx * cos + fy * sin) * length, (fy * cos - fx * sin) * width
    spectrum = np.exp(np.maximum(-5 * (along**2 + across**2), -40))  # denormal numbers are slow
    spectrum[:, 0, 0] = 0
    real, imaginary = rng.uniform(-1, 1, (2, *spectrum.shape))
    fields = np.fft.irfft2((real + 1j * imaginary) * spectrum, shape)
    return fields / np.maximum(fields.std((1, 2), keepdims=True), 1e-9)


def _bend(image: np.ndarray, flow: np.ndarray) -> np.ndarray:
    ys, xs = (np.indices(image.shape) + flow).astype(np.float32)
    return cv2.remap(image.astype(np.float32), xs, ys, cv2.INTER_LINEAR, borderMode=cv2.BORDER_WRAP)
