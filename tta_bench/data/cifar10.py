"""All of CIFAR-10, from the python batches as published or from an .npz, corrupted as CIFAR-10-C is."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np

from tta_bench.api import Domain
from tta_bench.data import roots
from tta_bench.data.cifar10_files import BadFile, read_splits
from tta_bench.data.corruptible import Corruptible, Split

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
        except BadFile:  # `problems` says which; a plan needs none of the files
            return ""
        parts = f"{test.digest()}/{train.digest()}/{self.corruption_seed}"
        return hashlib.sha256(parts.encode()).hexdigest()

    def problems(self, domains: Sequence[Domain]) -> list[str]:
        """No files, files that are not CIFAR-10, and domains that do not exist."""
        try:
            self._splits  # noqa: B018 - reading them is the check
        except BadFile as error:
            return [str(error)]
        return super().problems(domains)

    @cached_property
    def _splits(self) -> tuple[Split, Split]:
        return read_splits(self._place(), SOURCE_IMAGES)

    def _place(self) -> Path:
        place = roots.locate(self.root, "cifar10")
        if place is None:
            raise BadFile(f"cifar10 is not part of the package. {roots.remedy('cifar10')}")
        if not place.exists() and place.with_suffix(".npz").exists():
            return place.with_suffix(".npz")
        return place
