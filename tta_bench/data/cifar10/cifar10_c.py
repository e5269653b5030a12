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
from tta_bench.cache.content_hash import FolderHashes, Stamp
from tta_bench.data import location
from tta_bench.data.cifar10.mini import Cifar10Mini
from tta_bench.data.domains import CLEAN, composed_problems, domain_problems
from tta_bench.data.images.pixels import to_tensor
from tta_bench.data.problems import BadData

IMAGES = 10_000
SEVERITIES = 5
SHAPE = (SEVERITIES * IMAGES, 32, 32, 3)
LABELS = "labels.npy"


@dataclass
class Cifar10C(Data):
    """10 000 images in the order of CIFAR-10; the source is the embedded training images."""

    version: ClassVar[str] = "2"  # 1: the fingerprint covered 64 images of every domain
    num_classes: ClassVar[int] = 10
    input_size: ClassVar[int] = 32
    size: ClassVar[int] = 10_000
    summary: ClassVar[str] = "the published CIFAR-10-C, from your disk"
    paths: ClassVar[tuple[str, ...]] = ("root",)

    root: str = ""  # folder of the images; by default looked for in $TTA_BENCH_DATA

    def source_images(self) -> Tensor:
        """512 training images from the package."""
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
        """Files that are missing, truncated or of another shape; unknown domains."""
        if any(domain.corruption == CLEAN for domain in domains):
            return ["clean: CIFAR-10-C has no clean images. Use data cifar10 for clean images."]
        if composed := composed_problems(domains, "cifar10"):
            return composed
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
        if labels.shape != SHAPE[:1] or labels.min() < 0 or labels.max() >= self.num_classes:
            raise BadData(f"{self._place() / LABELS}: not {SHAPE[0]} labels from 0 to 9. Unpack it again.")
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
        return location.required(self.root, "cifar10-c")


def _open(path: Path) -> np.ndarray:
    """The memory-mapped array of a file; pickled objects are refused."""
    if not path.is_file():
        raise BadData(f"{path}: is missing. Unpack CIFAR-10-C there, or set data.root.")
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise BadData(f"{path}: is damaged or cut short ({error}). Unpack it again.") from error
