"""Corrupt images so that a result depends on that image alone, not on limit, order or worker."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from tta_bench.errors import UserError

if TYPE_CHECKING:
    from tta_bench.api import CorruptionFunction  # at run time this would import torch


class BadCorruption(UserError):
    """A corruption that returned something else than an image like the one it was given."""


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
        yield corrupt_image(image, int(image_id), name, function, severity, seed)


def corrupt_image(
    image: np.ndarray, image_id: int, name: str, function: CorruptionFunction, severity: int, seed: int
) -> np.ndarray:
    """One uint8 HWC image, corrupted; the function gets a copy, so that it cannot change the clean image."""
    result = function(image.copy(), severity, rng_of(seed, name, severity, image_id))
    return checked(result, name, image.shape)


def checked(result: object, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """What a corruption returned, if it is a uint8 image of this shape."""
    if isinstance(result, np.ndarray) and result.dtype == np.uint8 and result.shape == shape:
        return result
    if isinstance(result, np.ndarray):
        found = f"{result.dtype} {result.shape}"
    else:
        found = "None" if result is None else f"an object of type {type(result).__name__}"
    raise BadCorruption(
        f'corruption "{name}": returned {found} instead of a uint8 array {shape}. Return an image of the '
        "same shape, with values clipped to 0 to 255, as uint8."
    )


def version_of(function: CorruptionFunction) -> str:
    """The `VERSION` of the module that defines a corruption; bumped whenever its bytes change."""
    return str(getattr(sys.modules[function.__module__], "VERSION", "1"))
