"""A corruption: a function from an image to an image. Darker corners are a starting point for your own."""

import numpy as np

VERSION = "1"  # whenever its pixels change, set it to "2", and so on

STRENGTHS = (0.3, 0.45, 0.6, 0.75, 0.9)  # for severities 1 to 5: the share of light that a corner loses


def plugin_object(image: np.ndarray, severity: int, rng: np.random.Generator) -> np.ndarray:
    """A lens that lets less light through at its edge, with its centre near that of the image.

    The image is uint8 [height, width, 3], of any size, and so is the result. Draw all chance from `rng`.
    """
    height, width = image.shape[:2]
    centre_y, centre_x = rng.uniform(-0.2, 0.2, 2)
    y, x = np.linspace(-1, 1, height)[:, None], np.linspace(-1, 1, width)[None, :]
    distance = np.minimum(((y - centre_y) ** 2 + (x - centre_x) ** 2) / 2, 1)
    light = 1 - STRENGTHS[severity - 1] * distance
    return np.clip(image * light[..., None], 0, 255).astype(np.uint8)
