"""All of CIFAR-10, from the published Python batches or an .npz, corrupted as in CIFAR-10-C."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tta_bench.data.cifar.clean_set import CleanCifar
from tta_bench.data.cifar.files import CIFAR10


@dataclass
class Cifar10(CleanCifar):
    """All 10 000 test images; the first 512 training images are the clean ones."""

    num_classes: ClassVar[int] = 10
    summary: ClassVar[str] = "all 10 000 CIFAR-10 test images, from your disk; corrupted on first use"
    files = CIFAR10
    folder_name = "cifar10"
