"""The original photographs of frost, from a folder of the user: frost1.png … frost5.jpg."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import cv2
import numpy as np

from tta_bench.cache.content_hash import file_sha256
from tta_bench.corruptions.frost import Frost
from tta_bench.data.problems import BadData, some

# The script of ImageNet-C lists a sixth file but never uses it.
STEMS = ("frost1", "frost2", "frost3", "frost4", "frost5")
SUFFIXES = (".png", ".jpg", ".jpeg")
REMEDY = (
    "Set data.frost_images to a folder with frost1.png to frost3.png, frost4.jpg and frost5.jpg "
    "of ImageNet-C's scripts, or leave it out."
)


@dataclass(frozen=True)
class FrostImages:
    """A folder of photographs, read when they are needed."""

    folder: str

    @cached_property
    def files(self) -> tuple[Path, ...]:
        """The five files, in order."""
        place = Path(self.folder).expanduser()
        if not place.is_dir():
            raise BadData(f"{place}: there is no such folder. {REMEDY}")
        found = {stem: [place / f"{stem}{suffix}" for suffix in SUFFIXES] for stem in STEMS}
        there = {stem: [path for path in paths if path.is_file()] for stem, paths in found.items()}
        if missing := [stem for stem in STEMS if not there[stem]]:
            raise BadData(f"{place}: has no image {some(missing)}. {REMEDY}")
        if double := [path.name for paths in there.values() if len(paths) > 1 for path in paths]:
            raise BadData(f"{place}: has {some(double)}. Remove one of those with the same stem.")
        return tuple(paths[0] for paths in there.values())

    @cached_property
    def corruption(self) -> Frost:
        """Frost with these photographs."""
        return Frost(tuple(_read(path) for path in self.files))

    def digest(self) -> str:
        """SHA-256 over the content of the photographs; empty if some are missing (see `problems`)."""
        try:
            parts = [file_sha256(path) for path in self.files]
        except (BadData, OSError):
            return ""
        return hashlib.sha256("/".join(parts).encode()).hexdigest()

    def problems(self, side: int) -> list[str]:
        """Why these photographs cannot be used for images of this size."""
        try:
            shrunk = self.corruption.scaled(side)
        except BadData as error:
            return [str(error)]
        return [
            f"{path}: has {whole.shape[1]} x {whole.shape[0]} pixels, of which {used.shape[1]} x "
            f"{used.shape[0]} remain for images of {side} pixels, so that it does not cover them. {REMEDY}"
            for path, whole, used in zip(self.files, self.corruption.photographs, shrunk, strict=True)
            if min(used.shape[:2]) < side
        ]


def _read(path: Path) -> np.ndarray:
    """RGB, decoded as the original decodes it."""
    try:
        image = cv2.imdecode(np.fromfile(path, np.uint8), cv2.IMREAD_COLOR)
    except (OSError, cv2.error) as error:
        raise BadData(f"{path}: cannot be read: {error}. {REMEDY}") from error
    if image is None:
        raise BadData(f"{path}: is not an image. {REMEDY}")
    return np.ascontiguousarray(image[..., ::-1])
