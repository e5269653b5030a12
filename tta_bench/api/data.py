"""Labelled images under corruptions, and the functions that corrupt them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from tta_bench.api.model import ModelSource
from tta_bench.api.plugin import Plugin

# The severity is 1 to 5; between whole numbers only in scenarios that ask for it, such as crossfade.
CorruptionFunction = Callable[[np.ndarray, Any, np.random.Generator], np.ndarray]


@dataclass(frozen=True)
class Domain:
    """One corruption at one severity; `clean` has severity 0."""

    corruption: str
    severity: int

    def __str__(self) -> str:
        return f"{self.corruption}-{self.severity}"


class Data(Plugin):
    """Clean images to calibrate with, and labelled test images under every domain.

    Test images are in an order of which every prefix is a random sample, so that `limit` can shorten it.
    So are source images, with the class mix of the test images: quantizers use the first ones.
    """

    summary: ClassVar[str] = ""
    read_ahead: ClassVar[int] = 0  # batches to read in advance
    size: ClassVar[int] = 50_000  # test images per domain, for estimates before any image is read

    @property
    @abstractmethod
    def num_classes(self) -> int:
        """The number of classes that a model must have; 0 if it is not known."""

    @property
    @abstractmethod
    def input_size(self) -> int:
        """The width and height of its images in pixels."""

    def expected_images(self) -> int:
        """The number of test images per domain, for estimates and feasibility before any image is read."""
        return self.size

    @classmethod
    def presets(cls, model: ModelSource) -> dict[str, Any]:
        """Defaults that depend on the model; filled in before a cell's key is made."""
        return {}

    @abstractmethod
    def fingerprint(self) -> str:
        """SHA-256 over the images, independent of presets.

        Empty if there are no images, which `problems` then reports.
        """

    def domain_fingerprint(self, domain: Domain) -> str:
        """SHA-256 over the files of one domain; empty if `fingerprint` covers all."""
        return ""

    @abstractmethod
    def source_images(self) -> Tensor:
        """Clean images of the training domain, [N, 3, H, W] in [0, 1]."""

    def source_labels(self) -> np.ndarray | None:
        """Labels of the source images, if they are known; used only for warnings, no method sees them."""
        return None

    @abstractmethod
    def test_labels(self) -> np.ndarray:
        """Labels of all test images."""

    @abstractmethod
    def test_images(self, domain: Domain, index: np.ndarray) -> Tensor:
        """The test images of `domain` at `index`, [len(index), 3, H, W] in [0, 1]."""

    def own_domains(self) -> tuple[str, ...]:
        """Names of domains that are not corruptions; they have severity 0, like `clean`."""
        return ()

    def classes(self) -> np.ndarray | None:
        """The classes of the model that labels refer to, if not all; the model is limited to these."""
        return None

    def note(self) -> str:
        """What a reader of the numbers must know about these images; it is in the records of every cell."""
        return ""

    def domain_note(self, domain: Domain) -> str:
        """What a reader must also know about one domain; it is in the records of cells that use it."""
        return ""

    def prepare(self, domain: Domain, count: int) -> None:
        """Make the first `count` images of a domain ready, so that reading them later is cheap."""

    def problems(self, domains: Sequence[Domain]) -> list[str]:
        """Why these domains cannot be read on this machine: problem and remedy, one sentence each."""
        return []
