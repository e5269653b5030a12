"""Corrupt images so that a result depends only on the image, not on limit, order or worker."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from tta_bench.corruptions.composed import steps_of
from tta_bench.errors import UserError
from tta_bench.plugins.source_code import source_hash

if TYPE_CHECKING:
    from tta_bench.api import CorruptionFunction  # avoids importing torch at run time


class BadCorruption(UserError):
    """A corruption did not return an image of the same shape and type."""


def rng_of(seed: int, name: str, severity: float, image_id: int) -> np.random.Generator:
    """The random generator for one image and one corruption."""
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
    """Each uint8 HWC image, corrupted, one after the other; the function gets a copy of the clean image."""
    steps = steps_of(name, function, severity)
    for image, image_id in zip(images, ids, strict=True):
        for part, step in steps:
            chance = rng_of(seed, part.name, part.severity, int(image_id))
            image = checked(step(image.copy(), part.severity, chance), part.name, image.shape)
        yield image


def checked(result: object, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The result of a corruption, checked to be a uint8 image of this shape."""
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
    return "+".join(str(getattr(sys.modules[name], "VERSION", "1")) for name in _modules_of(function))


def code_of(function: CorruptionFunction) -> str:
    """The hash of the source code of a corruption."""
    return "+".join(map(source_hash, _modules_of(function)))


def _modules_of(function: CorruptionFunction) -> list[str]:
    """The modules that define a corruption, or those that it consists of."""
    return [step.__module__ for _, step in steps_of("", function, 0)]
