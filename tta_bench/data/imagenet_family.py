"""Data whose classes are ImageNet's, and whose source is ImageNet itself."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from tta_bench.api import Domain
from tta_bench.data import roots, wnids
from tta_bench.data.class_folders import ImageFile
from tta_bench.data.complaints import BadData
from tta_bench.data.image_files import ImageFiles
from tta_bench.data.imagenet_clean import CleanImageNet


@dataclass
class OfImageNet(ImageFiles):
    """Base: where ImageNet is, which of its images are the source, what the tested ones are."""

    version: ClassVar[str] = "2"  # 1: images were known by their names and sizes
    num_classes: ClassVar[int] = 1000
    folder_name: ClassVar[str]  # in $TTA_BENCH_DATA
    alternative: ClassVar[str] = ""  # a sentence on what to do without this data

    source: Literal["auto", "train", "held-out", "shared"] = "auto"
    partial: bool = False  # some of the classes or images are all there is meant to be

    @abstractmethod
    def imagenet_place(self) -> Path:
        """The folder of ImageNet's val and train."""

    @abstractmethod
    def tested(self) -> Sequence[ImageFile]:
        """The test images in a fair order."""

    @abstractmethod
    def content(self) -> str:
        """SHA-256 over the test images."""

    @abstractmethod
    def complaints(self, domains: Sequence[Domain]) -> list[str]:
        """What is wrong with these domains, now that the folders are there."""

    @cached_property
    def place(self) -> Path:
        """Where this data lies."""
        place = roots.locate(self.root, self.folder_name)
        remedy = f"{roots.remedy(self.folder_name)} {self.alternative}".rstrip()
        if place is None:
            raise BadData(f"{self.folder_name} is not part of the package. {remedy}")
        if not place.is_dir():
            raise BadData(f"{place}: there is no such folder. {remedy}")
        return place

    @cached_property
    def clean(self) -> CleanImageNet:
        """ImageNet's own images."""
        return CleanImageNet(self.imagenet_place(), self.source, self.source_count, self.partial)

    def source_paths(self) -> Sequence[Path]:
        return self.clean.source_paths()

    def test_labels(self) -> np.ndarray:
        return self._labels

    @cached_property
    def _labels(self) -> np.ndarray:
        return labels_of((file.folder for file in self.tested()), wnids.imagenet())

    def fingerprint(self) -> str:
        """SHA-256 over what is tested and what the source is; no root is in it."""
        try:
            return hashlib.sha256(f"{self.content()}/{self.clean.digest()}".encode()).hexdigest()
        except BadData:
            return ""

    def problems(self, domains: Sequence[Domain]) -> list[str]:
        """Folders, classes, counts and files that are not as they should be, each named."""
        try:
            return self.view_problems() or self.complaints(domains)
        except BadData as error:
            return [str(error)]


@dataclass
class BesideImageNet(OfImageNet):
    """Base of sets that are published without ImageNet, and need it for their source."""

    paths: ClassVar[tuple[str, ...]] = ("root", "imagenet_root")

    imagenet_root: str = ""

    def imagenet_place(self) -> Path:
        """Where the file says, else in $TTA_BENCH_DATA, else beside this data."""
        place = roots.locate(self.imagenet_root, "imagenet") or self.place.parent / "imagenet"
        if not place.is_dir():
            raise BadData(
                f"{place}: there is no such folder, and source images come from ImageNet. "
                "Set data.imagenet_root to the folder that has its val or train."
            )
        return place


def labels_of(folders: Iterable[str], classes: tuple[str, ...]) -> np.ndarray:
    """The label of each class folder's name."""
    places = wnids.indices(classes)
    return np.array([places[folder] for folder in folders], np.int64)
