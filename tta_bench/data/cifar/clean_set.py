"""Base of the clean sets: CIFAR-10 or CIFAR-100 as a whole, corrupted as CIFAR-10-C is."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from tta_bench.api import Domain
from tta_bench.data import location
from tta_bench.data.cifar.files import CifarFiles, read_splits
from tta_bench.data.corrupted.in_memory import Corruptible, Split
from tta_bench.data.problems import BadData

SOURCE_IMAGES = 512


@dataclass
class CleanCifar(Corruptible):
    """All 10 000 test images; the first 512 training images are the clean ones."""

    input_size: ClassVar[int] = 32
    size: ClassVar[int] = 10_000
    paths: ClassVar[tuple[str, ...]] = ("root", "frost_images")
    files: ClassVar[CifarFiles]
    folder_name: ClassVar[str]  # in $TTA_BENCH_DATA

    root: str = ""  # a folder with the python version, or an .npz

    def clean_test(self) -> Split:
        """The 10 000 test images."""
        return self.splits[1]

    def clean_source(self) -> np.ndarray:
        """The first 512 training images."""
        return self.splits[0].images

    def fingerprint(self) -> str:
        """SHA-256 over both splits and the seed of the corruptions."""
        try:
            train, test = self.splits
        except BadData:  # reported by `problems`; a plan does not need the files
            return ""
        parts = f"{test.digest()}/{train.digest()}/{self.corruption_seed}"
        return hashlib.sha256(parts.encode()).hexdigest()

    def problems(self, domains: Sequence[Domain]) -> list[str]:
        """Missing or wrong files, and unknown domains."""
        try:
            self.splits  # noqa: B018 - reading them is the check
        except BadData as error:
            return [str(error)]
        return super().problems(domains)

    @cached_property
    def splits(self) -> tuple[Split, Split]:
        """The source images and the test images; BadData if they are missing or wrong."""
        place = location.required(self.root, self.folder_name)
        if not place.exists() and place.with_suffix(".npz").exists():
            place = place.with_suffix(".npz")
        return read_splits(place, self.files, SOURCE_IMAGES)
