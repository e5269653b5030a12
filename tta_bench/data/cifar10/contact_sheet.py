"""Small images stored as one PNG sheet with an index: tile, cut, check and read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from tta_bench.data.corrupted.in_memory import Split

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable  # not in Python 3.10


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


def read_index(folder: Traversable) -> dict[str, dict]:
    """The index of the sheets in a folder."""
    return json.loads((folder / "index.json").read_text())


def read_split(folder: Traversable, name: str) -> Split:
    """The images of one sheet, checked against the index."""
    entry = read_index(folder)[name]
    with (folder / f"{name}.png").open("rb") as file:
        images = cut(np.asarray(Image.open(file).convert("RGB")), entry["columns"])
    labels, ids = np.array(entry["labels"], np.int64), np.array(entry["indices"], np.int64)
    split = Split(images, labels, ids)
    if split.digest() != entry["sha256"]:
        raise ValueError(f"{folder}: {name}.png is damaged. Reinstall tta-bench.")
    return split
