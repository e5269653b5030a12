"""The last step of ImageNet-C's script: corrupted images are saved as JPEG of quality 85.

It belongs to the corruption: BN-Adapt on contrast-5 reaches 47.8 % without it, 20.0 % with it (ResNet-50).
"""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

QUALITY = 85
NOTE = f"corrupted images saved as JPEG of quality {QUALITY}, as ImageNet-C's are"


def encode(image: np.ndarray) -> bytes:
    """The file of a uint8 HWC image."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=QUALITY, optimize=True)
    return file.getvalue()


def encode_exactly(image: np.ndarray) -> bytes:
    """A file from which the image comes back as it was: PNG."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG")
    return file.getvalue()


def saved(image: np.ndarray) -> np.ndarray:
    """A uint8 HWC image after it was saved and read again."""
    with Image.open(io.BytesIO(encode(image))) as read:
        return np.asarray(read)
