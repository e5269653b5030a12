"""ImageNet-R and ImageNet-Sketch: other pictures of ImageNet's classes, ROOT/wnid/*."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from torch import Tensor

from tta_bench.api import Count, Domain
from tta_bench.data import decode, integrity, wnids
from tta_bench.data.class_folders import (
    ClassFolders,
    ImageFile,
    class_problems,
    fair_order,
    scan,
    subfolders,
)
from tta_bench.data.imagenet_family import BesideImageNet, labels_of
from tta_bench.data.pixels import to_tensor


@dataclass
class Variant(BesideImageNet):
    """Base: one domain, whose images are nobody else's."""

    domain_name: ClassVar[str]

    input_size: Count = 224

    @abstractmethod
    def class_names(self) -> tuple[str, ...]:
        """The classes that occur."""

    def own_domains(self) -> tuple[str, ...]:
        return (self.domain_name,)

    @cached_property
    def tree(self) -> ClassFolders:
        """The set, which its archive may have put into a folder of its own."""
        inner = subfolders(self.place)
        nested = len(inner) == 1 and inner[0] not in self.class_names()
        return scan(self.place / inner[0] if nested else self.place)

    @cached_property
    def _tested(self) -> list[ImageFile]:
        return fair_order(self.tree.files)

    def tested(self) -> Sequence[ImageFile]:
        return self._tested

    def content(self) -> str:
        return self.tree.digest(self.tested())

    def test_images(self, domain: Domain, index: np.ndarray) -> Tensor:
        paths = [self.tree.path(self.tested()[i]) for i in index]
        return to_tensor(decode.read_all(paths, self.view))

    def complaints(self, domains: Sequence[Domain]) -> list[str]:
        if wrong := [domain for domain in domains if domain != Domain(self.domain_name, 0)]:
            only = f"Write `stream: {{corruptions: {self.domain_name}}}`"
            return [f"{wrong[0]}: {self.folder_name} has one domain, {self.domain_name}. {only}."]
        found = class_problems(self.tree, self.class_names(), self.partial, total=self.size)
        return (found or integrity.damages(self.tree, self.tested())) + self.clean.problems(tested=False)


@dataclass
class ImageNetR(Variant):
    """30 000 renditions of 200 classes; the model is cut down to these."""

    summary: ClassVar[str] = "ImageNet-R: 30 000 renditions of 200 classes, from your disk"
    folder_name: ClassVar[str] = "imagenet-r"
    domain_name: ClassVar[str] = "rendition"
    size: ClassVar[int] = 30_000

    def class_names(self) -> tuple[str, ...]:
        return wnids.rendition()

    def classes(self) -> np.ndarray:
        return labels_of(wnids.rendition(), wnids.imagenet())

    @cached_property
    def _labels(self) -> np.ndarray:
        return labels_of((file.folder for file in self.tested()), wnids.rendition())


@dataclass
class ImageNetSketch(Variant):
    """50 889 sketches of all 1000 classes."""

    summary: ClassVar[str] = "ImageNet-Sketch: 50 889 sketches of 1000 classes, from your disk"
    folder_name: ClassVar[str] = "imagenet-sketch"
    domain_name: ClassVar[str] = "sketch"
    size: ClassVar[int] = 50_889

    def class_names(self) -> tuple[str, ...]:
        return wnids.imagenet()
