"""Small images as one viewable PNG with an index beside it: cutting, checking and reading."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable  # not in Python 3.10

SPLIT_FILES = {"test": "test.png", "train": "train.png"}


@dataclass(frozen=True, eq=False)
class Split:
    """Images as uint8 [N, H, W, 3], their labels, and their indices in the original data."""

    images: np.ndarray
    labels: np.ndarray
    ids: np.ndarray


def tile(images: np.ndarray, columns: int) -> np.ndarray:
    """Images [N, H, W, 3] laid out in reading order."""
    count, height, width, channels = images.shape
    grid = images.reshape(count // columns, columns, height, width, channels).swapaxes(1, 2)
    return grid.reshape(count // columns * height, columns * width, channels)


def cut(sheet: np.ndarray, columns: int) -> np.ndarray:
    """The square images of a sheet; undoes `tile`."""
    side = sheet.shape[1] // columns
    grid = sheet.reshape(-1, side, columns, side, 3).swapaxes(1, 2)
    return np.ascontiguousarray(grid.reshape(-1, side, side, 3))


def digest(images: np.ndarray, labels: np.ndarray, ids: np.ndarray) -> str:
    """SHA-256 over pixels, labels and indices."""
    parts = [images.astype("u1"), labels.astype("<i8"), ids.astype("<i8")]
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


def read_index(folder: Traversable) -> dict[str, dict]:
    """The index of the sheets in a folder."""
    return json.loads((folder / "index.json").read_text())


def read_split(folder: Traversable, name: str) -> Split:
    """The images of one sheet, checked against the index."""
    entry = read_index(folder)[name]
    with (folder / SPLIT_FILES[name]).open("rb") as file:
        images = cut(np.asarray(Image.open(file).convert("RGB")), entry["columns"])
    labels, ids = np.array(entry["labels"], np.int64), np.array(entry["indices"], np.int64)
    if digest(images, labels, ids) != entry["sha256"]:
        raise ValueError(f"{folder}: {SPLIT_FILES[name]} is damaged. Reinstall tta-bench.")
    return Split(images, labels, ids)
