"""Base classes of data with ImageNet's classes and source images from ImageNet."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from tta_bench.api import Domain
from tta_bench.data import location
from tta_bench.data.imagenet import wnids
from tta_bench.data.imagenet.clean import CleanImageNet
from tta_bench.data.images.class_folders import ImageFile
from tta_bench.data.images.files import ImageFiles
from tta_bench.data.problems import BadData


@dataclass
class OfImageNet(ImageFiles):
    """Base: the folder of ImageNet, its source images, and the test images."""

    version: ClassVar[str] = "2"  # 1: images were identified by name and size
    num_classes: ClassVar[int] = 1000
    folder_name: ClassVar[str]  # its name in $TTA_BENCH_DATA
    alternative: ClassVar[str] = ""  # a sentence on what to do without this data

    # Which clean images methods may use before the stream.
    source: Literal["auto", "train", "held-out", "shared"] = "auto"
    partial: bool = False  # accept a part of the classes or images

    @property
    def listed(self) -> tuple[str, ...]:
        """The test images in order, if they are a published subset."""
        return ()

    def expected_images(self) -> int:
        return len(self.listed) or self.size

    @abstractmethod
    def imagenet_place(self) -> Path:
        """The folder of ImageNet's val and train."""

    @abstractmethod
    def tested(self) -> Sequence[ImageFile]:
        """The test images in random order."""

    def class_names(self) -> tuple[str, ...]:
        """The classes that occur, in the order of the labels."""
        return wnids.imagenet()

    @abstractmethod
    def content(self) -> str:
        """SHA-256 over the test images."""

    @abstractmethod
    def complaints(self, domains: Sequence[Domain]) -> list[str]:
        """Problems of these domains, if the folders exist."""

    @cached_property
    def place(self) -> Path:
        """The folder of this data."""
        place = location.required(self.root, self.folder_name, self.alternative)
        if not place.is_dir():
            remedy = f"{location.remedy(self.folder_name)} {self.alternative}".rstrip()
            raise BadData(f"{place}: there is no such folder. {remedy}")
        return place

    @cached_property
    def clean(self) -> CleanImageNet:
        """ImageNet's own images."""
        return CleanImageNet(self.imagenet_place(), self.source, self.source_count, self.partial, self.listed)

    def source_paths(self) -> Sequence[Path]:
        tree, files = self.clean.source_files
        return [tree.path(file) for file in files]

    def test_labels(self) -> np.ndarray:
        return self._labels

    @cached_property
    def _labels(self) -> np.ndarray:
        return wnids.labels_of((file.folder for file in self.tested()), self.class_names())

    def fingerprint(self) -> str:
        """SHA-256 over the test and source images; independent of their folders."""
        try:
            return hashlib.sha256(f"{self.content()}/{self.clean.digest()}".encode()).hexdigest()
        except BadData:
            return ""

    def problems(self, domains: Sequence[Domain]) -> list[str]:
        """Problems with folders, classes, numbers of images and files."""
        try:
            return self.view_problems() or self.complaints(domains)
        except BadData as error:
            return [str(error)]


@dataclass
class BesideImageNet(OfImageNet):
    """Base of sets that are published without ImageNet and take their source images from it."""

    paths: ClassVar[tuple[str, ...]] = ("root", "imagenet_root")

    imagenet_root: str = ""  # folder of ImageNet with clean images; by default looked for in $TTA_BENCH_DATA

    def imagenet_place(self) -> Path:
        """`imagenet_root`, else in $TTA_BENCH_DATA, else beside this data."""
        place = location.locate(self.imagenet_root, "imagenet") or self.place.parent / "imagenet"
        if not place.is_dir():
            raise BadData(
                f"{place}: there is no such folder, and source images come from ImageNet. "
                "Set data.imagenet_root to the folder with val or train."
            )
        return place
