"""Corrupted images made from image files, each saved as a file in the cache.

ImageNet-C's published script resizes to 256 pixels, cuts out 224, corrupts, and saves as JPEG of quality 85.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from tta_bench.api import CorruptionFunction, Domain, View
from tta_bench.cache import entries
from tta_bench.corruptions.apply import corrupt, version_of
from tta_bench.corruptions.composed import plain_names
from tta_bench.data.images import decode, jpeg
from tta_bench.data.images.class_folders import ClassFolders, ImageFile
from tta_bench.plugins.identity import code_of

SIZE = 224
CLEAN_CUT = View(SIZE, 256, "bilinear")
AS_SAVED = View(SIZE, 0)
IMAGENET_C = "imagenet-c"


@dataclass(frozen=True)
class CorruptedFiles:
    """One corrupted domain of a tree of clean images; each image is made once, if it can be saved."""

    tree: ClassFolders
    domain: Domain
    seed: int
    function: CorruptionFunction
    reads: str = ""  # SHA-256 of other files that the function reads
    cut: View = CLEAN_CUT  # how clean images are cropped before they are corrupted
    as_jpeg: bool = True  # as in ImageNet-C's script; else lossless
    kind: str = IMAGENET_C  # folder of the cache entries

    def read(self, files: Sequence[ImageFile]) -> np.ndarray:
        """These images, corrupted, uint8 [N, size, size, 3]."""
        size = self.cut.size
        if not files:
            return np.empty((0, size, size, 3), np.uint8)
        names = self._names(files)

        def read(file: ImageFile) -> np.ndarray:
            return decode.pixels(io.BytesIO(self._load_or_make(file, names[file])), View(size, 0))

        with ThreadPoolExecutor(decode.threads()) as pool:
            return np.stack(list(pool.map(read, files)))

    def file(self, file: ImageFile) -> bytes:
        """The file of one image, corrupted."""
        return self._load_or_make(file, self._names([file])[file])

    def prepare(self, files: Sequence[ImageFile]) -> None:
        """Make those of these images that are not in the cache, unless nothing can be saved there."""
        if entries.problem() is not None:
            return
        there = {folder: entries.names(self._kind(folder)) for folder in {file.folder for file in files}}
        names = self._names(files)
        missing = [file for file in files if names[file] not in there[file.folder]]
        with ThreadPoolExecutor(decode.threads()) as pool:
            for _ in pool.map(lambda file: self._load_or_make(file, names[file]), missing):
                pass  # not kept here: a whole domain would fill the memory

    def _names(self, files: Sequence[ImageFile]) -> dict[ImageFile, str]:
        """The name of each corrupted image in the cache, which depends on all that decides its pixels."""
        contents = self.tree.contents(files)
        return {file: self._name(file, contents[file.key]) for file in files}

    def _name(self, file: ImageFile, content: str) -> str:
        facts = f"{self._corruption}/{self.seed}/{file.key}/{content}"
        if self.kind != IMAGENET_C:  # which is always cropped in the same way
            facts += f"/{self.cut}"
        suffix = "JPEG" if self.as_jpeg else "png"
        return f"{Path(file.name).stem}-{hashlib.sha256(facts.encode()).hexdigest()[:12]}.{suffix}"

    @cached_property
    def _corruption(self) -> str:
        code = "+".join(code_of("corruptions", name) for name in plain_names(self.domain.corruption))
        return f"{version_of(self.function)}/{code}{self.reads}"

    def _kind(self, folder: str) -> str:
        return f"{self.kind}/{self.domain.corruption}/{self.domain.severity}/{folder}"

    def _load_or_make(self, file: ImageFile, name: str) -> bytes:
        return entries.load_or_make(self._kind(file.folder), name, lambda: self._make(file), bytes, bytes)

    def _make(self, file: ImageFile) -> bytes:
        name, severity = self.domain.corruption, self.domain.severity
        number = int.from_bytes(hashlib.sha256(file.key.encode()).digest()[:6], "little")
        clean = decode.read(self.tree.path(file), self.cut)
        (corrupted,) = corrupt([clean], [number], name, self.function, severity, self.seed)
        return jpeg.encode(corrupted, lossless=not self.as_jpeg)
