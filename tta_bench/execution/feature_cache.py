"""Features on disk, up to a limit: one pass computes them, later segments with the same batches read them.

The next round mostly needs the batches in the same order. So the first batches are kept until the limit is
reached, and the rest is computed again: replacing the oldest batch would drop the one that is needed next.
"""

from __future__ import annotations

import tempfile
from collections.abc import Hashable
from typing import IO, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tta_bench.cache import entries
from tta_bench.planning.sharing import FEATURE_CACHE_BYTES


class CachedFeatures(NamedTuple):
    """Where the features of a batch are in the file, and how to restore them."""

    start: int
    shape: tuple[int, ...]
    dtype: np.dtype
    device: torch.device
    seconds: float


class FeatureCache:
    """Features by key in one temporary file, which is deleted when the process ends."""

    def __init__(self, limit_bytes: int = FEATURE_CACHE_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._entries: dict[Hashable, CachedFeatures] = {}
        self._file = _unnamed_file()

    def put(self, key: Hashable, features: Tensor, seconds: float) -> None:
        """Store features and the seconds they took to compute, if there is room."""
        if self._file is None or self.held_bytes + features.nbytes > self.limit_bytes:
            return
        numbers = features.detach().cpu().contiguous().numpy()
        try:
            self._file.seek(self.held_bytes)
            self._file.write(numbers.tobytes())
            self._file.flush()
        except OSError:  # a full disk only makes the next round slower
            self.limit_bytes = self.held_bytes
            return
        entry = (self.held_bytes, numbers.shape, numbers.dtype, features.device, seconds)
        self._entries[key] = CachedFeatures(*entry)
        self.held_bytes += features.nbytes

    def get(self, key: Hashable) -> tuple[Tensor, float] | None:
        """A copy of the features and their seconds; None if they are not stored."""
        entry = self._entries.get(key)
        if self._file is None or entry is None:
            return None
        mapped = np.memmap(self._file, entry.dtype, "r", entry.start, entry.shape)
        return torch.from_numpy(np.array(mapped)).to(entry.device), entry.seconds


def _unnamed_file() -> IO[bytes] | None:
    """A file without a name, so that its space is freed however this process ends; None if impossible."""
    folder = entries.folder() / "features"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryFile(dir=folder)
    except OSError:  # later rounds compute their features again
        return None
