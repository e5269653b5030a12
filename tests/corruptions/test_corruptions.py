"""Corruptions: contract, determinism, strength, and equality with the published definitions."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from tta_bench.corruptions import blur, filters
from tta_bench.corruptions.apply import corrupt, rng_of
from tta_bench.corruptions.sets import GROUPS, HELD_OUT_4, IMAGENET_C_15, SETS, SHORT_NAMES
from tta_bench.data.cifar10.contact_sheet import Split
from tta_bench.data.cifar10.mini import Cifar10Mini
from tta_bench.plugins import registry

NAMES = [*IMAGENET_C_15, *HELD_OUT_4]
WITHOUT_CHANCE = {
    "defocus_blur",
    "zoom_blur",
    "gaussian_blur",
    "brightness",
    "contrast",
    "pixelate",
    "jpeg_compression",
    "saturate",
}


@pytest.fixture(scope="module")
def test_split() -> Split:
    return Cifar10Mini()._test


def picture(height: int, width: int) -> np.ndarray:
    """A smooth colour picture that nobody may write to."""
    coarse = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    image = np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))
    image.setflags(write=False)
    return image


@pytest.mark.parametrize("size", [(32, 32), (224, 224), (40, 48), (100, 75)])
@pytest.mark.parametrize("name", registry.names("corruptions"))
def test_contract(name: str, size: tuple[int, int]) -> None:
    function, image = registry.load("corruptions", name), picture(*size)
    for severity in range(1, 6):
        result = function(image, severity, rng_of(0, name, severity, 7))
        again = function(image, severity, rng_of(0, name, severity, 7))
        assert (result.dtype, result.shape) == (np.uint8, image.shape)
        assert np.array_equal(result, again)
        assert not np.array_equal(result, image)


@pytest.mark.parametrize("name", registry.names("corruptions"))
@pytest.mark.parametrize("value", [0, 255])
def test_plain_images_survive(name: str, value: int) -> None:
    image = np.full((32, 32, 3), value, np.uint8)
    for severity in range(1, 6):
        result = registry.load("corruptions", name)(image, severity, np.random.default_rng(0))
        assert result.dtype == np.uint8


@pytest.mark.parametrize("name", NAMES)
def test_chance_depends_on_seed_name_severity_and_image(name: str) -> None:
    function, image = registry.load("corruptions", name), picture(32, 32)
    here = function(image, 3, rng_of(0, name, 3, 7))
    for other in (rng_of(1, name, 3, 7), rng_of(0, "x", 3, 7), rng_of(0, name, 3, 8)):
        assert np.array_equal(here, function(image, 3, other)) == (name in WITHOUT_CHANCE)


def test_result_is_independent_of_limit_and_order(test_split: Split) -> None:
    function = registry.load("corruptions", "snow")
    images, ids = test_split.images[:8], test_split.ids[:8]
    forward = list(corrupt(images, ids, "snow", function, 5, 0))
    backward = list(corrupt(images[::-1], ids[::-1], "snow", function, 5, 0))
    few = list(corrupt(images[:3], ids[:3], "snow", function, 5, 0))
    assert np.array_equal(forward, backward[::-1])
    assert np.array_equal(forward[:3], few)


@pytest.mark.parametrize("severity", [0, 6, -1])
def test_unknown_severity_is_refused(severity: int) -> None:
    function = registry.load("corruptions", "fog")
    with pytest.raises(ValueError, match="use 1 to 5"):
        function(picture(32, 32), severity, np.random.default_rng(0))


@pytest.mark.parametrize(("sigma", "reach"), [(0.05, 4), (0.4, 4), (6.0, 4), (22.0, 3)])
def test_gaussian_equals_scipy(sigma: float, reach: float) -> None:
    image = np.random.default_rng(0).random((32, 40))
    expected = ndimage.gaussian_filter(image, sigma, mode="nearest", truncate=reach)
    assert np.allclose(filters.blur_gaussian(image, sigma, reach), expected, atol=1e-12)


@pytest.mark.parametrize("side", [32, 224])
def test_zoom_equals_cropping_and_scipy_zoom(side: int) -> None:
    image = np.random.default_rng(0).random((side, side))
    factors = np.array([1.0, 1.01, 1.13, 1.25, 2.5, 4.5])
    for factor, zoomed in zip(factors, filters.zoom(image, factors), strict=True):
        crop = int(np.ceil(side / factor))
        top = (side - crop) // 2
        spread = ndimage.zoom(image[top : top + crop, top : top + crop], factor, order=1)
        trim = (len(spread) - side) // 2
        assert np.allclose(zoomed, spread[trim : trim + side, trim : trim + side], atol=1e-9)


@pytest.mark.parametrize("farthest", [1, 4])
def test_glass_equals_the_sequential_loop(farthest: int) -> None:
    side = 24
    source = blur._scatter(side, side, farthest, np.random.default_rng(3))
    inner = side - 2 * farthest
    dx, dy = np.random.default_rng(3).integers(-farthest, farthest, (2, inner, inner))
    image = np.arange(side * side).reshape(side, side)
    for row in range(side - farthest, farthest, -1):
        for column in range(side - farthest, farthest, -1):
            at = (row - farthest - 1, column - farthest - 1)
            image[row, column] = image[row + dy[at], column + dx[at]]
    assert np.array_equal(source, image.ravel())


def test_motion_blur_trails_one_way_and_keeps_light() -> None:
    image = np.zeros((41, 41))
    image[20, 20] = 1
    blurred = filters.blur_motion(image, radius=6, sigma=3, degrees=0)
    assert blurred.sum() == pytest.approx(1)
    assert np.flatnonzero(blurred.sum(0)).tolist() == list(range(8, 21))
    assert np.flatnonzero(blurred.sum(1)).tolist() == [20]


def test_names_groups_and_sets_agree() -> None:
    assert len(IMAGENET_C_15) == 15
    assert HELD_OUT_4 == ("speckle_noise", "gaussian_blur", "spatter", "saturate")
    assert set(NAMES) == set(GROUPS) == set(SHORT_NAMES) <= set(registry.names("corruptions"))
    assert SETS == {"imagenet-c-15": IMAGENET_C_15, "held-out-4": HELD_OUT_4}


def test_sets_are_cheap_to_import() -> None:
    code = "import sys, tta_bench.corruptions.sets; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
