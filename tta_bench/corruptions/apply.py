"""Corrupt images so that a result depends on that image alone, not on limit, order or worker."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tta_bench.api import CorruptionFunction  # at run time this would import torch


def rng_of(seed: int, name: str, severity: int, image_id: int) -> np.random.Generator:
    """The generator of one image under one corruption."""
    digest = hashlib.sha256(f"{seed}/{name}/{severity}/{image_id}".encode()).digest()
    return np.random.default_rng(np.frombuffer(digest, "<u4"))


def corrupt(
    images: Iterable[np.ndarray],
    ids: Iterable[int],
    name: str,
    function: CorruptionFunction,
    severity: int,
    seed: int,
) -> Iterator[np.ndarray]:
    """Each uint8 HWC image, corrupted, one after the other."""
    for image, image_id in zip(images, ids, strict=True):
        yield function(image, severity, rng_of(seed, name, severity, int(image_id)))


def version_of(function: CorruptionFunction) -> str:
    """The `VERSION` of the module that defines a corruption; bumped whenever its bytes change."""
    return str(getattr(sys.modules[function.__module__], "VERSION", "1"))
