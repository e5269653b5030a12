"""The published CIFAR-10-C: one .npy for each corruption, severity after severity, and labels.npy."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
from torch import Tensor

from tta_bench.api import Data, Domain
from tta_bench.content_hash import FolderHashes, Stamp
from tta_bench.data import roots
from tta_bench.data.cifar10_mini import Cifar10Mini
from tta_bench.data.complaints import BadData
from tta_bench.data.domains import CLEAN, domain_problems
from tta_bench.data.pixels import to_tensor

IMAGES = 10_000
SEVERITIES = 5
SHAPE = (SEVERITIES * IMAGES, 32, 32, 3)
LABELS = "labels.npy"


@dataclass
class Cifar10C(Data):
    """10 000 images in the order of CIFAR-10; the source is the embedded training images."""

    version: ClassVar[str] = "2"  # 1: of every domain, 64 images were looked at
    num_classes: ClassVar[int] = 10
    input_size: ClassVar[int] = 32
    size: ClassVar[int] = 10_000
    summary: ClassVar[str] = "the published CIFAR-10-C, from your disk"
    paths: ClassVar[tuple[str, ...]] = ("root",)

    root: str = ""

    def source_images(self) -> Tensor:
        """512 training images, which are part of the package."""
        return Cifar10Mini().source_images()

    def test_labels(self) -> np.ndarray:
        return self._labels[:IMAGES].astype(np.int64)

    def test_images(self, domain: Domain, index: np.ndarray) -> Tensor:
        rows = index + (domain.severity - 1) * IMAGES
        return to_tensor(self._array(domain.corruption)[rows])

    def fingerprint(self) -> str:
        """SHA-256 over the labels and the source."""
        try:
            facts = self.test_labels().astype("<i8").tobytes()
        except BadData:
            return ""
        return hashlib.sha256(facts + Cifar10Mini().fingerprint().encode()).hexdigest()

    def domain_fingerprint(self, domain: Domain) -> str:
        """SHA-256 over the images of the domain."""
        try:
            self._array(domain.corruption)
            path = self._place() / f"{domain.corruption}.npy"
            return self._hashes.of({str(domain): Stamp.of(path.stat())})[str(domain)]
        except (BadData, OSError):
            return ""

    def problems(self, domains: Sequence[Domain]) -> list[str]:
        """Files that are missing, cut short or of another shape; domains that do not exist."""
        if any(domain.corruption == CLEAN for domain in domains):
            return ["clean: CIFAR-10-C has no clean images. Use data cifar10 for these."]
        found = domain_problems(domains)
        try:
            self.test_labels()
        except BadData as error:
            return [*found, str(error)]
        for name in dict.fromkeys(domain.corruption for domain in domains):
            try:
                self._array(name)
            except BadData as error:
                found.append(str(error))
        return found

    @cached_property
    def _labels(self) -> np.ndarray:
        labels = _open(self._place() / LABELS)
        wanted = SHAPE[:1]
        if labels.shape != wanted or labels.min() < 0 or labels.max() >= self.num_classes:
            raise BadData(f"{self._place() / LABELS}: not {wanted[0]} labels from 0 to 9. Unpack it again.")
        return labels

    @cached_property
    def _arrays(self) -> dict[str, np.ndarray]:
        return {}

    def _array(self, corruption: str) -> np.ndarray:
        if corruption not in self._arrays:
            path = self._place() / f"{corruption}.npy"
            images = _open(path)
            if images.shape != SHAPE or images.dtype != np.uint8:
                found = f"{images.dtype} {images.shape}"
                raise BadData(f"{path}: {found} instead of uint8 {SHAPE}. Unpack CIFAR-10-C again.")
            self._arrays[corruption] = images
        return self._arrays[corruption]

    @cached_property
    def _hashes(self) -> FolderHashes:
        return FolderHashes(self._place(), self._digest)

    def _digest(self, domain: str) -> bytes:
        corruption, _, severity = domain.rpartition("-")
        first = (int(severity) - 1) * IMAGES
        images = np.ascontiguousarray(self._array(corruption)[first : first + IMAGES])
        return hashlib.sha256(images.data).digest()

    def _place(self) -> Path:
        place = roots.locate(self.root, "cifar10-c")
        if place is None:
            raise BadData(f"cifar10-c is not part of the package. {roots.remedy('cifar10-c')}")
        return place


def _open(path: Path) -> np.ndarray:
    """The array in a file, mapped; pickled objects are refused."""
    if not path.is_file():
        raise BadData(f"{path}: is missing. Unpack CIFAR-10-C there, or set data.root.")
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise BadData(f"{path}: is damaged or cut short ({error}). Unpack it again.") from error
