"""The order in which test images arrive."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from tta_bench.api.data import Domain


@dataclass(frozen=True)
class Stream:
    """Rounds × domains × batches, in an order that depends on the seed and on no method."""

    domains: tuple[Domain, ...]
    rounds: int
    batch_size: int
    count: int
    order: str
    seed: int

    def index(self, round: int, domain: Domain) -> np.ndarray:
        """Indices of the test images of one domain in order of arrival."""
        if self.order == "sequential":
            return np.arange(self.count)
        turn = round if self.order == "reshuffled" else 0
        words = hashlib.sha256(f"{self.seed}/{turn}/{domain}".encode()).digest()
        return np.random.default_rng(np.frombuffer(words, np.uint32)).permutation(self.count)

    def batches(self, round: int, domain: Domain) -> list[np.ndarray]:
        """The indices in batches; a partial last batch is kept."""
        index = self.index(round, domain)
        return [index[i : i + self.batch_size] for i in range(0, self.count, self.batch_size)]

    def fingerprint(self, round: int, domain: Domain, data_fingerprint: str) -> str:
        """The first 16 digits of a SHA-256 over the images of one domain and their order."""
        digest = hashlib.sha256(f"{data_fingerprint}/{domain}/{self.batch_size}/".encode())
        digest.update(self.index(round, domain).astype("<i8").tobytes())
        return digest.hexdigest()[:16]

    @property
    def fixed_batches(self) -> bool:
        """Whether every round has the same batches."""
        return self.order != "reshuffled"
