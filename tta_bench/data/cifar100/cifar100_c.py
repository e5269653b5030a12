"""The published CIFAR-100-C."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from torch import Tensor

from tta_bench.data import location
from tta_bench.data.cifar.published_set import PublishedCifarC
from tta_bench.data.cifar100.cifar100 import Cifar100
from tta_bench.data.problems import BadData


@dataclass
class Cifar100C(PublishedCifarC):
    """10 000 images in the order of CIFAR-100; the source is the first 512 training images of CIFAR-100."""

    num_classes: ClassVar[int] = 100
    summary: ClassVar[str] = "the published CIFAR-100-C, from your disk; source images from CIFAR-100"
    paths: ClassVar[tuple[str, ...]] = ("root", "cifar100_root")
    set_name = "CIFAR-100-C"
    folder_name = "cifar100-c"
    clean_data = "cifar100"

    # CIFAR-100 with clean images: a folder with the python version, or an .npz; by default looked for in
    # $TTA_BENCH_DATA.
    cifar100_root: str = ""

    def source_images(self) -> Tensor:
        """The first 512 training images."""
        return self._clean.source_images()

    def source_fingerprint(self) -> str:
        try:
            return self._clean.splits[0].digest()
        except BadData as error:
            remedy = "Source images come from CIFAR-100: set data.cifar100_root to its folder."
            raise BadData(f"{error} {remedy}") from error

    @cached_property
    def _clean(self) -> Cifar100:
        """The clean set, beside this one if it is nowhere else."""
        place = location.locate(self.cifar100_root, "cifar100") or self._place().parent / "cifar100"
        return Cifar100(root=str(place))
