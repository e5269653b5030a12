"""Checks of corruptions.

A corruption keeps the shape and the type of an image, depends only on the image, the severity and the
generator, and is stronger at a higher severity. For the built-ins, mean and PSNR must also stay in recorded
bands (`corruptions.bands`), so that a change of their images is noticed on every machine.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import cv2
import numpy as np

from tta_bench.api import CorruptionFunction
from tta_bench.corruptions.apply import checked, corrupt
from tta_bench.corruptions.bands import BANDS, COUNTS, MEAN_LEVELS, NOT_STRONGER, PSNR_DB, SEVERITIES, Figures
from tta_bench.data.cifar10.mini import Cifar10Mini

SMALL = 32  # pixels per side of the images that every corruption is tried on


@cache
def sample_pictures(side: int) -> tuple[np.ndarray, np.ndarray]:
    """CIFAR-10 images as uint8 [N, side, side, 3], enlarged where needed, and their indices."""
    split = Cifar10Mini().clean_test()
    images, ids = split.images[: COUNTS[side]], split.ids[: COUNTS[side]]
    if side != SMALL:
        images = np.stack(
            [cv2.resize(image, (side, side), interpolation=cv2.INTER_CUBIC) for image in images]
        )
    return images, ids


@cache
def figures(function: CorruptionFunction, name: str, side: int) -> tuple[Figures, ...]:
    """Change of the mean, and PSNR, for each severity, over the sample pictures of this size."""
    images, ids = sample_pictures(side)
    found = []
    for severity in SEVERITIES:
        change = np.stack([*corrupt(images, ids, name, function, severity, 0)]) - images.astype(float)
        error = float((change**2).mean())
        found.append((float(change.mean()), 10 * np.log10(255**2 / error) if error else np.inf))
    return tuple(found)


def corruption_is_seeded(function: CorruptionFunction, name: str) -> None:
    """same seed, same bytes; keeps shape and type; does not change its input."""
    image = np.random.default_rng(0).integers(0, 256, (SMALL, SMALL, 3), dtype=np.uint8)
    before = image.copy()
    for severity in SEVERITIES:
        one, two = (
            checked(function(image, severity, np.random.default_rng(7)), name, image.shape) for _ in range(2)
        )
        assert np.array_equal(one, two), f"severity {severity} is not reproducible"
    assert np.array_equal(image, before), "the input was changed"


def severity_is_strength(function: CorruptionFunction, name: str) -> None:
    """is stronger at a higher severity: the PSNR falls."""
    for side in _sides(name):
        psnr = [figure[1] for figure in figures(function, name, side)]
        assert np.isfinite(psnr[0]), "severity 1 does not change the images"
        for severity, (here, next_one) in enumerate(pairwise(psnr), start=1):
            allowed = severity in NOT_STRONGER.get((name, side), ())
            assert allowed or next_one < here, (
                f"severity {severity + 1} is not stronger than {severity} on images of {side} pixels: the "
                f"PSNR is {here:.2f}, then {next_one:.2f} dB"
            )


def figures_are_as_stated(function: CorruptionFunction, name: str) -> None:
    """mean and PSNR are within the recorded bands, where there are any."""
    for side in _sides(name) if (name, SMALL) in BANDS else ():
        rows = zip(SEVERITIES, figures(function, name, side), BANDS[name, side], strict=True)
        for severity, (mean, psnr), (stated_mean, stated_psnr) in rows:
            inside = abs(mean - stated_mean) <= MEAN_LEVELS and abs(psnr - stated_psnr) <= PSNR_DB
            assert inside, (
                f"severity {severity}, images of {side} pixels: the mean changes by {mean:.1f} levels and "
                f"the PSNR is {psnr:.2f} dB; recorded are {stated_mean:.1f} ± {MEAN_LEVELS} and "
                f"{stated_psnr:.2f} ± {PSNR_DB}"
            )


def _sides(name: str) -> tuple[int, ...]:
    """The image sizes to try: built-ins have constants for small and for large images."""
    return tuple(COUNTS) if (name, SMALL) in BANDS else (SMALL,)
