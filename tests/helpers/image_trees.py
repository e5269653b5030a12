"""Small trees of real JPEG files in the layouts of the published sets."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tta_bench.cache import content_hash
from tta_bench.data.cifar10.contact_sheet import read_split
from tta_bench.data.imagenet.wnids import imagenet, rendition

CLASSES = imagenet()[:4]
RENDITIONS = rendition()[:3]


@lru_cache(maxsize=1)
def pictures() -> np.ndarray:
    """The embedded test images of CIFAR-10, classes taking turns."""
    return read_split(files("tta_bench") / "assets" / "cifar10-mini", "test").images


def write_picture(path: Path, number: int, size: tuple[int, int] = (224, 224), quality: int = 90) -> None:
    """One of the pictures, enlarged."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(pictures()[number]).resize(size, Image.Resampling.BICUBIC)
    image.save(path, "JPEG", quality=quality)


def val_name(number: int) -> str:
    """The name of a validation image."""
    return f"ILSVRC2012_val_{number:08d}.JPEG"


def write_classes(
    root: Path,
    each: int,
    classes: Sequence[str] = CLASSES,
    size: tuple[int, int] = (224, 224),
    shift: int = 0,
) -> None:
    """So many images in each class folder; `shift` chooses other pictures under the same names."""
    for i, wnid in enumerate(classes):
        for j in range(each):
            number = j * len(classes) + i
            write_picture(root / wnid / val_name(number), number + shift, size)


def write_imagenet(root: Path, each: int = 20) -> None:
    """ImageNet's validation set in class folders; its images are larger than what models read."""
    write_classes(root / "val", each, size=(300, 260))


def write_imagenet_c(root: Path, domains: Sequence[str] = ("fog/5", "snow/5"), each: int = 20) -> None:
    """ImageNet-C with the same names as the validation set."""
    for i, domain in enumerate(domains):
        write_classes(root / domain, each, shift=100 * (i + 1))


def files_hashed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A list that names every file whose content is read to be hashed, from now on."""
    read: list[Path] = []
    sha256 = content_hash._sha256

    def noted(path: Path) -> bytes:
        read.append(path)
        return sha256(path)

    monkeypatch.setattr(content_hash, "_sha256", noted)
    return read
