"""ImageNet's validation images, clean or corrupted on first use, if you do not have ImageNet-C."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from tta_bench.api import Count, Domain
from tta_bench.data.corrupted.base import CorruptedData
from tta_bench.data.corrupted.file_cache import SIZE, CorruptedFiles
from tta_bench.data.domains import CLEAN
from tta_bench.data.imagenet.family import OfImageNet
from tta_bench.data.imagenet.subsets import ALL, Subset, listed
from tta_bench.data.images.class_folders import ImageFile
from tta_bench.data.images.files import read_tensor
from tta_bench.data.images.pixels import to_tensor


@dataclass
class ImageNet(CorruptedData, OfImageNet):  # this order makes `root` the first field, for `imagenet:ROOT`
    """The validation set; corrupted images are made on first use and saved as JPEG files."""

    summary: ClassVar[str] = "ImageNet's validation images from your disk, clean or corrupted on first use"
    folder_name: ClassVar[str] = "imagenet"
    paths: ClassVar[tuple[str, ...]] = ("root", "frost_images")

    added: ClassVar[Mapping[str, Any]] = MappingProxyType({"subset": ALL})

    input_size: Count = 224  # pixels per side after cropping
    subset: Subset = ALL  # a published list of validation images; `order: sequential` keeps its order

    @property
    def listed(self) -> tuple[str, ...]:
        return listed(self.subset)

    def imagenet_place(self) -> Path:
        return self.place

    def tested(self) -> Sequence[ImageFile]:
        return self.clean.test

    def content(self) -> str:
        return f"{self.clean.val.digest(self.tested())}/{self.corruption_seed}"

    def note(self) -> str:
        return "corruptions regenerated, not the published files of ImageNet-C"

    def test_images(self, domain: Domain, index: np.ndarray) -> Tensor:
        files = [self.tested()[i] for i in index]
        if domain.corruption == CLEAN:
            return read_tensor(self.clean.val, files, self.view)
        return to_tensor(self.corrupted(domain).read(files))

    def prepare(self, domain: Domain, count: int) -> None:
        """Corrupt the first `count` test images and save them in the cache."""
        if domain.corruption != CLEAN:
            self.corrupted(domain).prepare(self.tested()[:count])

    def complaints(self, domains: Sequence[Domain]) -> list[str]:
        found = self.corruption_problems(domains)
        corrupted = [domain for domain in domains if domain.corruption != CLEAN]
        if corrupted and self.input_size != SIZE:
            found.append(
                f"{corrupted[0]}: ImageNet-C has {SIZE} pixels per side, the model reads {self.input_size}. "
                f"Choose a model that reads {SIZE}, or the corruption `clean`."
            )
        return found + self.clean.problems(tested=True)

    def new_corrupted(self, domain: Domain) -> CorruptedFiles:
        function, reads = self.corruption(domain.corruption), self.domain_fingerprint(domain)
        return CorruptedFiles(self.clean.val, domain, self.corruption_seed, function, reads)
