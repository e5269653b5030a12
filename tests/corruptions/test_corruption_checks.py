"""The contract suite of corruptions: what it accepts, and the faults that it finds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tta_bench.corruptions.bands import BANDS, COUNTS, NOT_STRONGER
from tta_bench.corruptions.sets import GROUPS
from tta_bench.plugins import registry
from tta_bench.testing import corruption_checks as checks
from tta_bench.testing.suite import checks_in

Function = Callable[[np.ndarray, int, np.random.Generator], np.ndarray]


def darker(image: np.ndarray, severity: int, rng: np.random.Generator) -> np.ndarray:
    """A sound corruption of a stranger's."""
    return (image * (1 - 0.1 * severity)).astype(np.uint8)


def reversed_severities(image: np.ndarray, severity: int, rng: np.random.Generator) -> np.ndarray:
    return darker(image, 6 - severity, rng)


def one_strength(image: np.ndarray, severity: int, rng: np.random.Generator) -> np.ndarray:
    return darker(image, 3, rng)


def nothing_at_first(image: np.ndarray, severity: int, rng: np.random.Generator) -> np.ndarray:
    return darker(image, severity - 1, rng)


def global_chance(image: np.ndarray, severity: int, rng: np.random.Generator) -> np.ndarray:
    noise = np.random.normal(0, 10 * severity, image.shape)
    return np.clip(image + noise, 0, 255).astype(np.uint8)


def run_all(function: Function, name: str = "a stranger's") -> None:
    for check in checks_in(checks):
        check(function, name)


def test_a_sound_corruption_passes() -> None:
    run_all(darker)


@pytest.mark.parametrize(
    ("function", "finding"),
    [
        (reversed_severities, "severity 2 is not stronger than 1 on images of 32 pixels: the PSNR is"),
        (one_strength, "severity 2 is not stronger than 1"),
        (nothing_at_first, "severity 1 does not change the images"),
        (global_chance, "is not reproducible"),
    ],
)
def test_a_fault_is_found(function: Function, finding: str) -> None:
    with pytest.raises(AssertionError, match=finding):
        run_all(function)


@pytest.mark.parametrize(("name", "change"), [("frost", 0.9), ("fog", 0.97), ("contrast", 0.97)])
def test_a_built_in_that_changes_leaves_its_bands(name: str, change: float) -> None:
    original = registry.load("corruptions", name)

    def weaker(image: np.ndarray, severity: int, rng: np.random.Generator) -> np.ndarray:
        mixed = change * original(image, severity, rng) + (1 - change) * image
        return mixed.astype(np.uint8)

    with pytest.raises(AssertionError, match="recorded are"):
        checks.figures_are_as_stated(weaker, name)


def test_figures_are_stated_for_every_built_in() -> None:
    assert set(BANDS) == {(name, side) for name in GROUPS for side in COUNTS}
    assert all(len(rows) == 5 for rows in BANDS.values())
    assert set(NOT_STRONGER) <= set(BANDS)


def test_no_step_is_exempt_that_is_stronger() -> None:
    for key, steps in NOT_STRONGER.items():
        psnr = [figure[1] for figure in BANDS[key]]
        assert steps == tuple(step for step in range(1, 5) if psnr[step] >= psnr[step - 1]), key
