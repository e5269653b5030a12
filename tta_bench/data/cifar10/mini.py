"""The embedded data: 2 000 test and 512 training images of CIFAR-10, corrupted as CIFAR-10-C is."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tta_bench.data.cifar10.contact_sheet import read_index, read_split
from tta_bench.data.corrupted.in_memory import Corruptible, Split

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable  # not in Python 3.10


@dataclass
class Cifar10Mini(Corruptible):
    """2 000 test images, 200 per class, one class after the other in turn; needs no download."""

    num_classes: ClassVar[int] = 10
    input_size: ClassVar[int] = 32
    size: ClassVar[int] = 2_000
    summary: ClassVar[str] = "2 000 CIFAR-10 test images, embedded; corrupted on first use"

    def clean_test(self) -> Split:
        """The 2 000 test images."""
        return read_split(_folder(), "test")

    def clean_source(self) -> np.ndarray:
        """512 training images."""
        return read_split(_folder(), "train").images

    def fingerprint(self) -> str:
        """SHA-256 over both splits, taken from their index, and the seed of the corruptions."""
        index = read_index(_folder())
        parts = f"{index['test']['sha256']}/{index['train']['sha256']}/{self.corruption_seed}"
        return hashlib.sha256(parts.encode()).hexdigest()


def _folder() -> Traversable:
    return files("tta_bench") / "assets" / "cifar10-mini"
