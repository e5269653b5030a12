"""The classes of ImageNet-1k and of its variants, by WordNet id, in the order of the logits."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files


@lru_cache(maxsize=2)
def _read(name: str) -> tuple[str, ...]:
    return tuple((files("tta_bench") / "assets" / "imagenet" / name).read_text().split())


def imagenet() -> tuple[str, ...]:
    """The 1000 classes."""
    return _read("wnids.txt")


def rendition() -> tuple[str, ...]:
    """The 200 classes of ImageNet-R."""
    return _read("rendition-wnids.txt")


def indices(wnids: tuple[str, ...]) -> dict[str, int]:
    """The place of each class."""
    return {wnid: i for i, wnid in enumerate(wnids)}
