"""Decode image files on all cores: Pillow releases the GIL while it decodes and resizes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image, UnidentifiedImageError

from tta_bench.api import View
from tta_bench.data.problems import BadData

MOST_THREADS = 16
UNDECODABLE = (OSError, ValueError, SyntaxError, Image.DecompressionBombError)  # raised by Pillow
FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def read_all(paths: Sequence[Path], view: View) -> np.ndarray:
    """The images of these files, uint8 [N, size, size, 3]."""
    if not paths:
        return np.empty((0, view.size, view.size, 3), np.uint8)
    with ThreadPoolExecutor(min(threads(), len(paths))) as pool:
        return np.stack(list(pool.map(lambda path: read(path, view), paths)))


def read(path: Path, view: View) -> np.ndarray:
    """One image, uint8 [size, size, 3]."""
    try:
        return pixels(path, view)
    except UNDECODABLE as error:
        raise BadData(f"{path}: cannot be decoded: {why(error)}. Copy it again.") from error


def pixels(file: Path | BinaryIO, view: View) -> np.ndarray:
    """One image of a file, uint8 [size, size, 3]."""
    with Image.open(file) as image:
        return np.asarray(cut(image.convert("RGB"), view))


def cut(image: Image.Image, view: View) -> Image.Image:
    """An image resized and cropped for the model, with torchvision's rounding, as weights were evaluated."""
    if view.resize:
        short = min(image.size)
        width, height = (int(view.resize * side / short) for side in image.size)
        image = image.resize((width, height), FILTERS[view.interpolation])
    width, height = image.size
    if min(width, height) < view.size:
        raise ValueError(f"it is {width} x {height} pixels, and {view.size} are needed")
    left, top = round((width - view.size) / 2), round((height - view.size) / 2)
    return image.crop((left, top, left + view.size, top + view.size))


def why(error: BaseException) -> str:
    """The error of Pillow, without the path, which the message has already."""
    if isinstance(error, UnidentifiedImageError):
        return "it is not an image"
    return getattr(error, "strerror", None) or str(error)


def threads() -> int:
    """The number of threads for reading and decoding files."""
    return min(MOST_THREADS, os.cpu_count() or 1)
