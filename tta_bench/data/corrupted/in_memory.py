"""Data with clean test images in memory; corrupted images are made on first use and saved in the cache."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from torch import Tensor

from tta_bench.api import Domain
from tta_bench.data.corrupted import array_cache
from tta_bench.data.corrupted.base import CorruptedData
from tta_bench.data.domains import CLEAN
from tta_bench.data.images import jpeg
from tta_bench.data.images.pixels import to_tensor


@dataclass(frozen=True, eq=False)
class Split:
    """Images as uint8 [N, H, W, 3], their labels, and their indices in the original data."""

    images: np.ndarray
    labels: np.ndarray
    ids: np.ndarray

    def digest(self) -> str:
        """SHA-256 over pixels, labels and indices."""
        parts = [self.images.astype("u1"), self.labels.astype("<i8"), self.ids.astype("<i8")]
        return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


@dataclass
class Corruptible(CorruptedData):
    """Every registered corruption of clean test images; a subclass gives the two clean splits."""

    # Save corrupted images as JPEG, as in ImageNet-C. A subclass may make it a field.
    saved_as_jpeg = False

    @abstractmethod
    def clean_test(self) -> Split:
        """The labelled test images; called once."""

    @abstractmethod
    def clean_source(self) -> np.ndarray:
        """Clean images of the training domain, uint8 [N, H, W, 3]; called once."""

    @abstractmethod
    def fingerprint(self) -> str:
        """SHA-256 over both splits and the seed of the corruptions."""

    def source_images(self) -> Tensor:
        return to_tensor(self._source)

    def test_labels(self) -> np.ndarray:
        return self._test.labels

    def test_images(self, domain: Domain, index: np.ndarray) -> Tensor:
        """Test images of a domain; makes the whole set if `prepare` has not made enough."""
        if domain.corruption == CLEAN:
            return to_tensor(self._test.images[index])
        return to_tensor(array_cache.read(self.corrupted(domain), index))

    def prepare(self, domain: Domain, count: int) -> None:
        """Corrupt the first `count` test images and save them in the cache."""
        if domain.corruption != CLEAN:
            array_cache.prepare(self.corrupted(domain), count)

    def problems(self, domains: Sequence[Domain]) -> list[str]:
        return self.corruption_problems(domains)

    def note(self) -> str:
        """How corrupted images were saved, if that is lossy."""
        return jpeg.NOTE if self.saved_as_jpeg else ""

    @cached_property
    def _source(self) -> np.ndarray:
        return self.clean_source()

    @cached_property
    def _test(self) -> Split:
        return self.clean_test()

    @cached_property
    def _fingerprint(self) -> str:
        return self.fingerprint()

    def new_corrupted(self, domain: Domain) -> array_cache.CorruptedArrays:
        return array_cache.CorruptedArrays(
            fingerprint=self._fingerprint + self.domain_fingerprint(domain),
            images=self._test.images,
            ids=self._test.ids,
            name=domain.corruption,
            function=self.corruption(domain.corruption),
            severity=domain.severity,
            seed=self.corruption_seed,
            as_jpeg=self.saved_as_jpeg,
        )
