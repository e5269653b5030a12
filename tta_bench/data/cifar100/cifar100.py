"""All of CIFAR-100, from the published Python version or an .npz, corrupted as in CIFAR-100-C."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tta_bench.data.cifar.clean_set import CleanCifar
from tta_bench.data.cifar.files import CIFAR100


@dataclass
class Cifar100(CleanCifar):
    """All 10 000 test images with their fine labels; the first 512 training images are the clean ones."""

    num_classes: ClassVar[int] = 100
    summary: ClassVar[str] = "all 10 000 CIFAR-100 test images, from your disk; corrupted on first use"
    files = CIFAR100
    folder_name = "cifar100"
