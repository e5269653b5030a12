"""Features on disk: what one pass made is read again by every later round, within a bound.

Rounds come in a cycle, so the batches that were kept first are those that are needed first again: what
fits is kept, and the rest is computed anew. To drop the oldest for the newest would drop each batch just
before its turn.
"""

from __future__ import annotations

import tempfile
from collections.abc import Hashable
from typing import NamedTuple

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
        folder = cache.folder() / "features"
        folder.mkdir(parents=True, exist_ok=True)
        # Without a name: whatever ends this process, its space is free again.
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115

    def put(self, key: Hashable, features: Tensor, seconds: float) -> None:
        """Keep features, and the seconds they took, if there is room."""
        if self.held_bytes + features.nbytes > self.limit_bytes:
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
        if (entry := self._entries.get(key)) is None:
            return None
        mapped = np.memmap(self._file, entry.dtype, "r", entry.start, entry.shape)
        return torch.from_numpy(np.array(mapped)).to(entry.device), entry.seconds
