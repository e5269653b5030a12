"""Base of CIFAR-10-C and CIFAR-100-C: an .npy for each corruption, severities in turn, and labels.npy."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
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
from tta_bench.data.domains import CLEAN, composed_problems, domain_problems
from tta_bench.data.images.pixels import to_tensor
from tta_bench.data.problems import BadData

IMAGES = 10_000
SEVERITIES = 5
SHAPE = (SEVERITIES * IMAGES, 32, 32, 3)
LABELS = "labels.npy"


@dataclass
class PublishedCifarC(Data):
    """10 000 images in the order of the clean set; a subclass says where its source images come from."""

    input_size: ClassVar[int] = 32
    size: ClassVar[int] = IMAGES
    paths: ClassVar[tuple[str, ...]] = ("root",)
    set_name: ClassVar[str]
    folder_name: ClassVar[str]  # in $TTA_BENCH_DATA
    clean_data: ClassVar[str]  # the plugin that has the clean images

    root: str = ""  # folder of the images; by default looked for in $TTA_BENCH_DATA

    @abstractmethod
    def source_fingerprint(self) -> str:
        """SHA-256 over the source images; BadData if there are none."""

    def test_labels(self) -> np.ndarray:
        return self._labels[:IMAGES].astype(np.int64)

    def test_images(self, domain: Domain, index: np.ndarray) -> Tensor:
        rows = index + (domain.severity - 1) * IMAGES
        return to_tensor(self._array(domain.corruption)[rows])

    def fingerprint(self) -> str:
        """SHA-256 over the labels and the source."""
        try:
            facts = self.test_labels().astype("<i8").tobytes()
            return hashlib.sha256(facts + self.source_fingerprint().encode()).hexdigest()
        except BadData:
            return ""

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
            other = self.clean_data
            return [f"clean: {self.set_name} has no clean images. Use data {other} for clean images."]
        if composed := composed_problems(domains, self.clean_data):
            return composed
        found = domain_problems(domains)
        try:
            self.test_labels()
            self.source_fingerprint()
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
        path, last = self._place() / LABELS, self.num_classes - 1
        labels = self._open(path)
        if labels.shape != SHAPE[:1] or labels.min() < 0 or labels.max() > last:
            raise BadData(f"{path}: not {SHAPE[0]} labels from 0 to {last}. Unpack it again.")
        return labels

    @cached_property
    def _arrays(self) -> dict[str, np.ndarray]:
        return {}

    def _array(self, corruption: str) -> np.ndarray:
        if corruption not in self._arrays:
            path = self._place() / f"{corruption}.npy"
            images = self._open(path)
            if images.shape != SHAPE or images.dtype != np.uint8:
                found = f"{images.dtype} {images.shape}"
                raise BadData(f"{path}: {found} instead of uint8 {SHAPE}. Unpack {self.set_name} again.")
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
        return location.required(self.root, self.folder_name)

    def _open(self, path: Path) -> np.ndarray:
        """The memory-mapped array of a file; pickled objects are refused."""
        if not path.is_file():
            raise BadData(f"{path}: is missing. Unpack {self.set_name} there, or set data.root.")
        try:
            return np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise BadData(f"{path}: is damaged or cut short ({error}). Unpack it again.") from error
