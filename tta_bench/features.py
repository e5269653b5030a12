"""Features on disk: what one pass made is read again by every later round, within a bound.

Rounds come in a cycle, so the batches that were kept first are those that are needed first again: what
fits is kept, and the rest is computed anew. To drop the oldest for the newest would drop each batch just
before its turn.
"""

from __future__ import annotations

import tempfile
from collections.abc import Hashable
from typing import IO, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tta_bench import cache

LIMIT_BYTES = 8 * 2**30  # three times what the 15 domains of ImageNet-C make with a ViT-B


class Entry(NamedTuple):
    """Where features lie in the file, and what they were."""

    start: int
    shape: tuple[int, ...]
    dtype: np.dtype
    device: torch.device
    seconds: float


class FeatureCache:
    """Features by key in one file, mapped into memory to be read, and gone with the process."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._entries: dict[Hashable, Entry] = {}
        self._file = _unnamed_file()

    def put(self, key: Hashable, features: Tensor, seconds: float) -> None:
        """Keep features, and the seconds they took, if there is room."""
        if self._file is None or self.held_bytes + features.nbytes > self.limit_bytes:
            return
        numbers = features.detach().cpu().contiguous().numpy()
        try:
            self._file.seek(self.held_bytes)
            self._file.write(numbers.tobytes())
            self._file.flush()
        except OSError:  # a full disk makes the next round slower, no more
            self.limit_bytes = self.held_bytes
            return
        self._entries[key] = Entry(self.held_bytes, numbers.shape, numbers.dtype, features.device, seconds)
        self.held_bytes += features.nbytes

    def get(self, key: Hashable) -> tuple[Tensor, float] | None:
        """What was put in, in memory of its own, or nothing."""
        entry = self._entries.get(key)
        if self._file is None or entry is None:
            return None
        mapped = np.memmap(self._file, entry.dtype, "r", entry.start, entry.shape)
        return torch.from_numpy(np.array(mapped)).to(entry.device), entry.seconds


def _unnamed_file() -> IO[bytes] | None:
    """A file without a name, so that its space is free whatever ends this process; None if impossible."""
    folder = cache.folder() / "features"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryFile(dir=folder)
    except OSError:  # later rounds compute their features again
        return None
