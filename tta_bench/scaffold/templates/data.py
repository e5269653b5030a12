"""Data: labelled test images, and clean images of the training domain; the base class adds corruptions.

The generated pictures are a starting point: put your own arrays into a folder, or read them in `clean_test`
and `clean_source` from wherever they are.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from tta_bench.api import Corruptible, Count, Domain, Split

CLASSES, SIDE = 10, 32
TEST, LABELS, SOURCE = "test_images.npy", "test_labels.npy", "source_images.npy"


@dataclass
class PluginClass(Corruptible):
    """Gratings whose direction is their class; or the arrays of a folder."""

    num_classes: ClassVar[int] = CLASSES
    input_size: ClassVar[int] = SIDE
    summary: ClassVar[str] = "generated gratings in ten directions, or your own arrays"
    paths: ClassVar[tuple[str, ...]] = (
        "root",
    )  # a path is not part of the identity of results; the fingerprint is

    root: str = ""  # a folder with the three arrays; images are uint8 [N, 32, 32, 3], labels integers
    images: Count = 1000  # test images to generate, if there is no folder
    saved_as_jpeg: bool = False  # save corrupted images as JPEG, as in ImageNet-C; records then say so

    def clean_test(self) -> Split:
        """The labelled images, with the classes mixed, so that every prefix has all classes."""
        if self.root:
            images, labels = self._array(TEST), self._array(LABELS).astype(np.int64)
        else:
            images, labels = gratings(self.images, seed=1)
        return Split(images, labels, np.arange(len(labels)))

    def clean_source(self) -> np.ndarray:
        """Clean source images: shuffled, with the class mix of the test images."""
        return self._array(SOURCE) if self.root else gratings(256, seed=0)[0]

    def source_labels(self) -> np.ndarray | None:
        """Their classes, if they are known; used only for warnings, no method sees them."""
        return None if self.root else gratings(256, seed=0)[1]

    def fingerprint(self) -> str:
        if self.problems([]):
            return ""
        digest = hashlib.sha256(f"{self.clean_test().digest()}/{self.corruption_seed}/".encode())
        digest.update(self.clean_source().tobytes())
        return digest.hexdigest()

    def problems(self, domains: Sequence[Domain]) -> list[str]:
        missing = [name for name in (TEST, LABELS, SOURCE) if self.root and not self._path(name).is_file()]
        found = [f"{self._path(name)}: no such file. Put it there, or set data.root." for name in missing]
        return found + super().problems(domains)

    def _path(self, name: str) -> Path:
        return Path(self.root).expanduser() / name

    def _array(self, name: str) -> np.ndarray:
        return np.load(self._path(name))  # refuses files that could run code


def gratings(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Coloured waves, uint8 [count, 32, 32, 3], and the classes of their directions, taking turns."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % CLASSES
    angle = (np.pi * labels / CLASSES)[:, None, None]
    frequency, phase = rng.uniform(0.4, 1.2, (count, 1, 1)), rng.uniform(0, 2 * np.pi, (count, 1, 1))
    y, x = np.mgrid[:SIDE, :SIDE]
    wave = np.sin(frequency * (x * np.cos(angle) + y * np.sin(angle)) + phase)
    colours = rng.uniform(0, 255, (2, count, 1, 1, 3))
    share = (wave[..., None] + 1) / 2
    return (share * colours[0] + (1 - share) * colours[1]).astype(np.uint8), labels
