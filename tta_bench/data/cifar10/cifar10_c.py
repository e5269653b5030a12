"""The published CIFAR-10-C."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tta_bench.data.cifar.published_set import PublishedCifarC
from tta_bench.data.cifar10.mini import Cifar10Mini


@dataclass
class Cifar10C(PublishedCifarC):
    """10 000 images in the order of CIFAR-10; the source is the embedded training images."""

    version: ClassVar[str] = "2"  # 1: the fingerprint covered 64 images of every domain
    num_classes: ClassVar[int] = 10
    summary: ClassVar[str] = "the published CIFAR-10-C, from your disk"
    set_name = "CIFAR-10-C"
    folder_name = "cifar10-c"
    clean_data = "cifar10"

    def source_images(self) -> Tensor:
        """512 training images from the package."""
        return Cifar10Mini().source_images()

    def source_fingerprint(self) -> str:
        return Cifar10Mini().fingerprint()
