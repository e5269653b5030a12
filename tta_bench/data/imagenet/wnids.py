"""The classes of ImageNet-1k and of its variants, by WordNet id, in the order of the logits."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from importlib.resources import files

import numpy as np


@lru_cache(maxsize=2)
def _read(name: str) -> tuple[str, ...]:
    return tuple((files("tta_bench") / "assets" / "imagenet" / name).read_text().split())


def imagenet() -> tuple[str, ...]:
    """The 1000 classes."""
    return _read("wnids.txt")


def rendition() -> tuple[str, ...]:
    """The 200 classes of ImageNet-R."""
    return _read("rendition-wnids.txt")


def labels_of(folders: Iterable[str], classes: tuple[str, ...]) -> np.ndarray:
    """The label of each class folder's name."""
    places = {name: i for i, name in enumerate(classes)}
    return np.array([places[folder] for folder in folders], np.int64)
