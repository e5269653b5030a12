"""All of CIFAR-10, from the published Python batches or an .npz, corrupted as in CIFAR-10-C."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from tta_bench.api import Domain
from tta_bench.data import location
from tta_bench.data.cifar10.files import read_splits
from tta_bench.data.corrupted.in_memory import Corruptible, Split
from tta_bench.data.problems import BadData

SOURCE_IMAGES = 512


@dataclass
class Cifar10(Corruptible):
    """All 10 000 test images; the first 512 training images are the clean ones."""

    num_classes: ClassVar[int] = 10
    input_size: ClassVar[int] = 32
    size: ClassVar[int] = 10_000
    summary: ClassVar[str] = "all 10 000 CIFAR-10 test images, from your disk; corrupted on first use"
    paths: ClassVar[tuple[str, ...]] = ("root", "frost_images")

    root: str = ""  # a folder with the python batches, or an .npz

    def clean_test(self) -> Split:
        """The 10 000 test images."""
        return self._splits[1]

    def clean_source(self) -> np.ndarray:
        """The first 512 training images."""
        return self._splits[0].images

    def fingerprint(self) -> str:
        """SHA-256 over both splits and the seed of the corruptions."""
        try:
            train, test = self._splits
        except BadData:  # reported by `problems`; a plan does not need the files
            return ""
        parts = f"{test.digest()}/{train.digest()}/{self.corruption_seed}"
        return hashlib.sha256(parts.encode()).hexdigest()

    def problems(self, domains: Sequence[Domain]) -> list[str]:
        """Missing or wrong files, and unknown domains."""
        try:
            self._splits  # noqa: B018 - reading them is the check
        except BadData as error:
            return [str(error)]
        return super().problems(domains)

    @cached_property
    def _splits(self) -> tuple[Split, Split]:
        place = location.required(self.root, "cifar10")
        if not place.exists() and place.with_suffix(".npz").exists():
            place = place.with_suffix(".npz")
        return read_splits(place, SOURCE_IMAGES)
