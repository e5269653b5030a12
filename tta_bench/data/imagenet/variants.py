"""ImageNet-R and ImageNet-Sketch: other pictures of ImageNet's classes, ROOT/wnid/*."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from torch import Tensor

from tta_bench.api import Count, Domain
from tta_bench.data.imagenet import wnids
from tta_bench.data.imagenet.family import BesideImageNet
from tta_bench.data.images import integrity
from tta_bench.data.images.class_folders import (
    ClassFolders,
    ImageFile,
    class_problems,
    fair_order,
    scan,
    subfolders,
)
from tta_bench.data.images.files import read_tensor


@dataclass
class Variant(BesideImageNet):
    """Base: a set with a single domain."""

    domain_name: ClassVar[str]

    input_size: Count = 224  # pixels per side after cropping

    def own_domains(self) -> tuple[str, ...]:
        return (self.domain_name,)

    @cached_property
    def tree(self) -> ClassFolders:
        """The folder of the images, which may be one level deeper, as in the published archive."""
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
        return read_tensor(self.tree, [self.tested()[i] for i in index], self.view)

    def complaints(self, domains: Sequence[Domain]) -> list[str]:
        if wrong := [domain for domain in domains if domain != Domain(self.domain_name, 0)]:
            only = f"Write `stream: {{corruptions: {self.domain_name}}}`"
            return [f"{wrong[0]}: {self.folder_name} has one domain, {self.domain_name}. {only}."]
        found = class_problems(self.tree, self.class_names(), self.partial, total=self.size)
        return (found or integrity.damages(self.tree, self.tested())) + self.clean.problems(tested=False)


@dataclass
class ImageNetR(Variant):
    """30 000 renditions of 200 classes; the model is limited to these classes."""

    summary: ClassVar[str] = "ImageNet-R: 30 000 renditions of 200 classes, from your disk"
    folder_name: ClassVar[str] = "imagenet-r"
    domain_name: ClassVar[str] = "rendition"
    size: ClassVar[int] = 30_000

    def class_names(self) -> tuple[str, ...]:
        return wnids.rendition()

    def classes(self) -> np.ndarray:
        return wnids.labels_of(wnids.rendition(), wnids.imagenet())


@dataclass
class ImageNetSketch(Variant):
    """50 889 sketches of all 1000 classes."""

    summary: ClassVar[str] = "ImageNet-Sketch: 50 889 sketches of 1000 classes, from your disk"
    folder_name: ClassVar[str] = "imagenet-sketch"
    domain_name: ClassVar[str] = "sketch"
    size: ClassVar[int] = 50_889
