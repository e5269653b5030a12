"""The last step of ImageNet-C's script: corrupted images are saved as JPEG of quality 85.

It is part of the corruption: BN-Adapt on contrast-5 reaches 47.8 % without it, 20.0 % with it (ResNet-50).
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image

QUALITY = 85
JPEG = {"format": "JPEG", "quality": QUALITY, "optimize": True}
NOTE = f"corrupted images saved as JPEG of quality {QUALITY}, as ImageNet-C's are"


def encode(image: np.ndarray, lossless: bool = False) -> bytes:
    """The JPEG file of a uint8 HWC image, or its PNG file."""
    options: dict[str, Any] = {"format": "PNG"} if lossless else JPEG
    file = io.BytesIO()
    Image.fromarray(image).save(file, **options)
    return file.getvalue()


def saved(image: np.ndarray) -> np.ndarray:
    """A uint8 HWC image after it was saved and read again."""
    with Image.open(io.BytesIO(encode(image))) as read:
        return np.asarray(read)
