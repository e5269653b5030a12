"""Data with clean test images in memory, corrupted on first use and kept on disk."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from torch import Tensor

from tta_bench.api import Domain
from tta_bench.data import corrupted, jpeg
from tta_bench.data.corrupting import Corrupting
from tta_bench.data.domains import CLEAN
from tta_bench.data.pixels import to_tensor


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
class Corruptible(Corrupting):
    """Serves every corruption of the registry from two clean splits."""

    # Whether corrupted images are saved as JPEG, as ImageNet-C's are. A subclass may make it a field.
    saved_as_jpeg = False

    @abstractmethod
    def clean_test(self) -> Split:
        """The labelled test images; asked once."""

    @abstractmethod
    def clean_source(self) -> np.ndarray:
        """Clean images of the training domain, uint8 [N, H, W, 3]; asked once."""

    @abstractmethod
    def fingerprint(self) -> str:
        """SHA-256 over both splits and the seed of the corruptions."""

    def source_images(self) -> Tensor:
        """Clean images of the training domain."""
        return to_tensor(self._source)

    def test_labels(self) -> np.ndarray:
        """Labels of all test images."""
        return self._test.labels

    def test_images(self, domain: Domain, index: np.ndarray) -> Tensor:
        """Test images under a domain; the whole set is made if `prepare` has not made enough."""
        if domain.corruption == CLEAN:
            return to_tensor(self._test.images[index])
        return to_tensor(corrupted.read(self._set(domain), index))

    def prepare(self, domain: Domain, count: int) -> None:
        """Corrupt the first `count` test images and keep them on disk."""
        if domain.corruption != CLEAN:
            corrupted.prepare(self._set(domain), count)

    def problems(self, domains: Sequence[Domain]) -> list[str]:
        """What is wrong with the domains, or with what they are made of."""
        return self.corruption_problems(domains)

    def note(self) -> str:
        """How corrupted images were saved, if that has changed them."""
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

    @cached_property
    def _corrupted(self) -> dict[Domain, corrupted.CorruptedSet]:
        return {}

    def _set(self, domain: Domain) -> corrupted.CorruptedSet:
        # Asked for every batch, and a look-up in the registry takes longer than reading one.
        if domain not in self._corrupted:
            self._corrupted[domain] = corrupted.CorruptedSet(
                fingerprint=self._fingerprint + self.domain_fingerprint(domain),
                images=self._test.images,
                ids=self._test.ids,
                name=domain.corruption,
                function=self.corruption(domain.corruption),
                severity=domain.severity,
                seed=self.corruption_seed,
                as_jpeg=self.saved_as_jpeg,
            )
        return self._corrupted[domain]
