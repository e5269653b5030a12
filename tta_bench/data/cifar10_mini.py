"""The embedded data: 2 000 test and 512 training images of CIFAR-10, corrupted as CIFAR-10-C is."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from tta_bench import registry
from tta_bench.api import Data, Domain
from tta_bench.data import corrupted
from tta_bench.data.contact_sheet import Split, read_index, read_split
from tta_bench.data.domains import CLEAN, domain_problems

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable  # not in Python 3.10


@dataclass
class Cifar10Mini(Data):
    """2 000 test images, 200 a class, classes taking turns; needs no download."""

    num_classes: ClassVar[int] = 10
    input_size: ClassVar[int] = 32
    summary: ClassVar[str] = "2 000 CIFAR-10 test images, embedded; corrupted on first use"

    corruption_seed: int = 0

    def fingerprint(self) -> str:
        """SHA-256 over both splits and the seed of the corruptions."""
        index = read_index(_folder())
        parts = f"{index['test']['sha256']}/{index['train']['sha256']}/{self.corruption_seed}"
        return hashlib.sha256(parts.encode()).hexdigest()

    def source_images(self) -> Tensor:
        """512 training images."""
        return _to_tensor(read_split(_folder(), "train").images)

    def test_labels(self) -> np.ndarray:
        """Labels of the 2 000 test images."""
        return self._test.labels

    def test_images(self, domain: Domain, index: np.ndarray) -> Tensor:
        """Test images under a domain; the whole set is made if `prepare` has not made enough."""
        if domain.corruption == CLEAN:
            return _to_tensor(self._test.images[index])
        return _to_tensor(corrupted.read(self._set(domain), index))

    def prepare(self, domain: Domain, count: int) -> None:
        """Corrupt the first `count` test images and keep them on disk."""
        if domain.corruption != CLEAN:
            corrupted.prepare(self._set(domain), count)

    def problems(self, domains: Sequence[Domain]) -> list[str]:
        """Unknown corruptions and severities."""
        return domain_problems(domains)

    @cached_property
    def _test(self) -> Split:
        return read_split(_folder(), "test")

    @cached_property
    def _corrupted(self) -> dict[Domain, corrupted.CorruptedSet]:
        return {}

    def _set(self, domain: Domain) -> corrupted.CorruptedSet:
        # Asked for every batch, and a look-up in the registry takes longer than reading one.
        if domain not in self._corrupted:
            self._corrupted[domain] = corrupted.CorruptedSet(
                fingerprint=self.fingerprint(),
                images=self._test.images,
                ids=self._test.ids,
                name=domain.corruption,
                function=registry.load("corruptions", domain.corruption),
                severity=domain.severity,
                seed=self.corruption_seed,
            )
        return self._corrupted[domain]


def _folder() -> Traversable:
    return files("tta_bench") / "assets" / "cifar10-mini"


def _to_tensor(images: np.ndarray) -> Tensor:
    # In numpy: torch's thread pool takes a hundred times as long for a batch when all cores are busy.
    floats = np.ascontiguousarray(images.transpose(0, 3, 1, 2), dtype=np.float32)
    floats /= 255
    return torch.from_numpy(floats)
