"""Corrupted test sets on disk: made once, named by all that decides their bytes, checked when read.

A set of `count` images is one `.npy` of records (CRC-32, uint8 image), memory-mapped. A set serves
every smaller count too. Where it cannot be saved, the images that are asked for are corrupted at once.
"""

from __future__ import annotations

import hashlib
import io
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from tta_bench import cache
from tta_bench.api import CorruptionFunction
from tta_bench.corruptions.apply import corrupt, version_of
from tta_bench.data import jpeg
from tta_bench.source_code import source_hash

KIND = "corrupted"  # of cache entries
NOTHING = np.arange(0)


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
    as_jpeg: bool = False  # each image is saved as JPEG and read again

    @property
    def record(self) -> np.dtype:
        """What a file holds for each image."""
        return np.dtype([("crc", "<u4"), ("image", "u1", self.images[0].shape)])

    def path(self, count: int | str) -> Path:
        """The file of the first `count` images."""
        code = (version_of(self.function), source_hash(self.function.__module__))
        facts: tuple[object, ...] = (
            self.fingerprint,
            self.name,
            code,
            self.severity,
            self.seed,
            self.record.descr,
        )
        facts += ("jpeg",) * self.as_jpeg
        key = hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
        return cache.folder() / KIND / f"{self.name}-{self.severity}-{key}-{count}.npy"


def prepare(wanted: CorruptedSet, count: int) -> None:
    """Make the first `count` images unless they are there, or cannot be saved."""
    if _find(wanted, count) is None:
        _make(wanted, count, NOTHING)


def read(wanted: CorruptedSet, index: np.ndarray) -> np.ndarray:
    """The corrupted images at `index`, uint8 [N, H, W, C]; makes or repairs the set if need be."""
    records = _find(wanted, int(index.max(initial=0)) + 1)
    images = _intact(records, index)
    if images is None:
        count = len(wanted.ids) if records is None else len(records)
        images = _intact(_make(wanted, count, index), index)
    if images is not None:
        return images
    return np.array(list(_corrupt(wanted, index)), np.uint8).reshape(len(index), *wanted.images[0].shape)


def _intact(records: np.ndarray | None, index: np.ndarray) -> np.ndarray | None:
    """The images at `index`, if all of them have their checksum."""
    if records is None:
        return None
    chosen = records[index]
    if all(record["crc"] == zlib.crc32(record["image"]) for record in chosen):
        return chosen["image"]
    return None


def _find(wanted: CorruptedSet, count: int) -> np.ndarray | None:
    """The smallest readable set of at least `count` images."""
    pattern = wanted.path("*")
    counts = [path.stem.rpartition("-")[2] for path in pattern.parent.glob(pattern.name)]
    for held in sorted(int(text) for text in counts if text.isdecimal()):
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


def _make(wanted: CorruptedSet, count: int, index: np.ndarray) -> np.ndarray | None:
    """A set whose images at `index` are whole, made here or elsewhere; None if it cannot be saved."""
    with cache.locked(KIND, wanted.path(count).stem):
        records = _open(wanted, count)
        if _intact(records, index) is None:
            with suppress(OSError):
                _write(wanted, count)
            records = _open(wanted, count)
        return records


def _write(wanted: CorruptedSet, count: int) -> None:
    """Corrupt and save. Written, not mapped: a full disk is then an error, not a killed process."""
    header = io.BytesIO()
    facts = {"descr": wanted.record.descr, "fortran_order": False, "shape": (count,)}
    npy.write_array_header_1_0(header, facts)
    size_bytes = len(header.getvalue()) + count * wanted.record.itemsize
    with cache.writing(wanted.path(count), size_bytes) as file:
        file.write(header.getvalue())
        for image in _corrupt(wanted, np.arange(count)):
            pixels = image.tobytes()
            file.write(zlib.crc32(pixels).to_bytes(4, "little") + pixels)


def _corrupt(wanted: CorruptedSet, index: np.ndarray) -> Iterator[np.ndarray]:
    """The images at `index`, one after the other, without the disk."""
    images, ids = (wanted.images[i] for i in index), (wanted.ids[i] for i in index)
    made = corrupt(images, ids, wanted.name, wanted.function, wanted.severity, wanted.seed)
    return map(jpeg.saved, made) if wanted.as_jpeg else made
