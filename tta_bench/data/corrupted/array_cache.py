"""Corrupted test sets on disk: made once, named by a hash of all that decides their bytes, checked when read.

A set of `count` images is one `.npy` of records (CRC-32, uint8 image), memory-mapped. A set is also
used for smaller counts. If it cannot be saved, images are corrupted each time they are read.
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

from tta_bench.api import CorruptionFunction
from tta_bench.cache import entries
from tta_bench.corruptions.apply import code_of, corrupt, version_of
from tta_bench.data.images import jpeg

KIND = "corrupted"  # folder of the cache entries
NOTHING = np.arange(0)


@dataclass(frozen=True, eq=False)
class CorruptedArrays:
    """Clean uint8 HWC images in test order with their original ids, and the corruption to apply."""

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
        """The record of one image in a file."""
        return np.dtype([("crc", "<u4"), ("image", "u1", self.images[0].shape)])

    def path(self, count: int | str) -> Path:
        """The file of the first `count` images."""
        code = (version_of(self.function), code_of(self.function))
        facts = (self.fingerprint, self.name, code, self.severity, self.seed, self.record.descr)
        saved = ("jpeg",) * self.as_jpeg
        key = hashlib.sha256(repr((*facts, *saved)).encode()).hexdigest()[:16]
        return entries.folder() / KIND / f"{self.name}-{self.severity}-{key}-{count}.npy"


def prepare(wanted: CorruptedArrays, count: int) -> None:
    """Make the first `count` images, unless they exist or cannot be saved."""
    if _find(wanted, count) is None:
        _make(wanted, count, NOTHING)


def read(wanted: CorruptedArrays, index: np.ndarray) -> np.ndarray:
    """The corrupted images at `index`, uint8 [N, H, W, C]; makes or repairs the set if needed."""
    records = _find(wanted, int(index.max(initial=0)) + 1)
    images = _intact(records, index)
    if images is None:
        count = len(wanted.ids) if records is None else len(records)
        images = _intact(_make(wanted, count, index), index)
    if images is not None:
        return images
    return np.array(list(_corrupt(wanted, index)), np.uint8).reshape(len(index), *wanted.images[0].shape)


def _intact(records: np.ndarray | None, index: np.ndarray) -> np.ndarray | None:
    """The images at `index`, if all their checksums are right."""
    if records is None:
        return None
    chosen = records[index]
    if all(record["crc"] == zlib.crc32(record["image"]) for record in chosen):
        return chosen["image"]
    return None


def _find(wanted: CorruptedArrays, count: int) -> np.ndarray | None:
    """The smallest readable set of at least `count` images."""
    pattern = wanted.path("*")
    counts = [path.stem.rpartition("-")[2] for path in pattern.parent.glob(pattern.name)]
    for held in sorted(int(text) for text in counts if text.isdecimal()):
        if held >= count and (records := _open(wanted, held)) is not None:
            return records
    return None


def _open(wanted: CorruptedArrays, count: int) -> np.ndarray | None:
    # The file is truncated, is something else, or was just removed by another process.
    with suppress(OSError, ValueError, EOFError):
        records = npy.open_memmap(wanted.path(count), mode="r")
        if records.dtype == wanted.record and records.shape == (count,):
            return records
    return None


def _make(wanted: CorruptedArrays, count: int, index: np.ndarray) -> np.ndarray | None:
    """A set with intact images at `index`, made by this or another process; None if it cannot be saved."""
    with entries.locked(KIND, wanted.path(count).stem):
        records = _open(wanted, count)
        if _intact(records, index) is None:
            with suppress(OSError):
                _write(wanted, count)
            records = _open(wanted, count)
        return records


def _write(wanted: CorruptedArrays, count: int) -> None:
    """Corrupt and save; written without mmap, with which a full disk would kill the process."""
    header = io.BytesIO()
    facts = {"descr": wanted.record.descr, "fortran_order": False, "shape": (count,)}
    npy.write_array_header_1_0(header, facts)
    size_bytes = len(header.getvalue()) + count * wanted.record.itemsize
    with entries.writing(wanted.path(count), size_bytes) as file:
        file.write(header.getvalue())
        for image in _corrupt(wanted, np.arange(count)):
            pixels = image.tobytes()
            file.write(zlib.crc32(pixels).to_bytes(4, "little") + pixels)


def _corrupt(wanted: CorruptedArrays, index: np.ndarray) -> Iterator[np.ndarray]:
    """The images at `index`, corrupted now, without using the disk."""
    images, ids = (wanted.images[i] for i in index), (wanted.ids[i] for i in index)
    made = corrupt(images, ids, wanted.name, wanted.function, wanted.severity, wanted.seed)
    return map(jpeg.saved, made) if wanted.as_jpeg else made
