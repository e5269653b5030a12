"""Corrupted test sets on disk: made once, named by all that decides their bytes, checked when read.

A set of `count` images is one `.npy` of records (CRC-32, uint8 image), memory-mapped. A set serves
every smaller count too. Files appear by an atomic rename: processes that race make the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.lib import format as npy

from tta_bench import cache
from tta_bench.api import CorruptionFunction
from tta_bench.corruptions.apply import corrupt, version_of


@dataclass(frozen=True, eq=False)
class CorruptedSet:
    """Clean uint8 HWC images in test order with lasting ids, and what is done to them."""

    fingerprint: str
    images: Sequence[np.ndarray] | np.ndarray
    ids: Sequence[int] | np.ndarray
    name: str
    function: CorruptionFunction
    severity: int
    seed: int

    @property
    def record(self) -> np.dtype:
        """What a file holds for each image."""
        return np.dtype([("crc", "<u4"), ("image", "u1", self.images[0].shape)])

    def path(self, count: int | str) -> Path:
        """The file of the first `count` images."""
        facts = (self.fingerprint, self.name, version_of(self.function), self.severity, self.seed)
        key = hashlib.sha256(repr((*facts, self.record.descr)).encode()).hexdigest()[:16]
        return cache.folder() / "corrupted" / f"{self.name}-{self.severity}-{key}-{count}.npy"


def prepare(wanted: CorruptedSet, count: int) -> None:
    """Make the first `count` images unless they are there."""
    if _find(wanted, count) is None:
        _make(wanted, count)


def read(wanted: CorruptedSet, index: np.ndarray) -> np.ndarray:
    """The corrupted images at `index`, uint8 [N, H, W, C]; makes or repairs the set if need be."""
    records = _find(wanted, int(index.max(initial=0)) + 1)
    if records is None:
        records = _make(wanted, len(wanted.ids))
    chosen = records[index]
    if not all(record["crc"] == zlib.crc32(record["image"]) for record in chosen):
        chosen = _make(wanted, len(records))[index]
    return chosen["image"]


def _find(wanted: CorruptedSet, count: int) -> np.ndarray | None:
    """The smallest readable set of at least `count` images."""
    pattern = wanted.path("*")
    counts = sorted(int(path.stem.rpartition("-")[2]) for path in pattern.parent.glob(pattern.name))
    for held in counts:
        if held >= count and (records := _open(wanted, held)) is not None:
            return records
    return None


def _open(wanted: CorruptedSet, count: int) -> np.ndarray | None:
    # What a truncated or foreign file raises, and a file that another process has just removed.
    with suppress(OSError, ValueError, EOFError):
        records = npy.open_memmap(wanted.path(count), mode="r")
        if records.dtype == wanted.record and records.shape == (count,):
            return records
    return None


def _make(wanted: CorruptedSet, count: int) -> np.ndarray:
    path = wanted.path(count)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent, suffix=".draft")
    try:
        # Written, not mapped: a full disk is then an error, not a killed process.
        with os.fdopen(handle, "wb") as file:
            _write(file, wanted, count)
        os.replace(draft, path)
    finally:
        Path(draft).unlink(missing_ok=True)
    return npy.open_memmap(path, mode="r")


def _write(file: BinaryIO, wanted: CorruptedSet, count: int) -> None:
    header = {"descr": wanted.record.descr, "fortran_order": False, "shape": (count,)}
    npy.write_array_header_1_0(file, header)
    images, ids = wanted.images[:count], wanted.ids[:count]
    for image in corrupt(images, ids, wanted.name, wanted.function, wanted.severity, wanted.seed):
        pixels = image.tobytes()
        file.write(zlib.crc32(pixels).to_bytes(4, "little") + pixels)
