"""ImageNet's validation images, clean, or corrupted here when the published ImageNet-C is not at hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
from torch import Tensor

from tta_bench.api import Count, Domain
from tta_bench.data import decode
from tta_bench.data.class_folders import ImageFile
from tta_bench.data.corrupting import Corrupting
from tta_bench.data.domains import CLEAN
from tta_bench.data.imagenet_family import OfImageNet
from tta_bench.data.pixels import to_tensor
from tta_bench.data.regenerated import SIZE, Regenerated


@dataclass
class ImageNet(Corrupting, OfImageNet):  # in this order `root` is the first field, for `imagenet:ROOT`
    """The validation set; corrupted images are made on first use and kept as JPEG files."""

    summary: ClassVar[str] = "ImageNet's validation images from your disk, clean or corrupted on first use"
    folder_name: ClassVar[str] = "imagenet"
    paths: ClassVar[tuple[str, ...]] = ("root", "frost_images")

    input_size: Count = 224

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
            paths = [self.clean.val.path(file) for file in files]
            return to_tensor(decode.read_all(paths, self.view))
        return to_tensor(self._regenerated(domain).read(files))

    def prepare(self, domain: Domain, count: int) -> None:
        """Corrupt the first `count` test images and keep them on disk."""
        if domain.corruption != CLEAN:
            self._regenerated(domain).prepare(self.tested()[:count])

    def complaints(self, domains: Sequence[Domain]) -> list[str]:
        found = self.corruption_problems(domains)
        corrupted = [domain for domain in domains if domain.corruption != CLEAN]
        if corrupted and self.input_size != SIZE:
            found.append(
                f"{corrupted[0]}: ImageNet-C is {SIZE} pixels a side, and the model reads {self.input_size}. "
                f"Choose a model that reads {SIZE}, or the corruption `clean`."
            )
        return found + self.clean.problems(tested=True)

    @cached_property
    def _corrupted(self) -> dict[Domain, Regenerated]:
        return {}

    def _regenerated(self, domain: Domain) -> Regenerated:
        # Asked for every batch, and a look-up in the registry takes longer than reading one.
        if domain not in self._corrupted:
            self._corrupted[domain] = Regenerated(
                self.clean.val,
                domain,
                self.corruption_seed,
                self.corruption(domain.corruption),
                self.domain_fingerprint(domain),
            )
        return self._corrupted[domain]
