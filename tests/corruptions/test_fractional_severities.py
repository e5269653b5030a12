"""Severities between whole numbers, and one corruption after another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.helpers.image_trees import write_imagenet
from tta_bench.api import Domain
from tta_bench.corruptions import blur, digital, frost, noise, weather
from tta_bench.corruptions.apply import corrupt
from tta_bench.corruptions.composed import Composed, Part, composed_name, parts_of, plain_names
from tta_bench.corruptions.sets import GROUPS
from tta_bench.corruptions.shared import Constants
from tta_bench.data.cifar10.cifar10_c import Cifar10C
from tta_bench.data.cifar10.mini import Cifar10Mini
from tta_bench.data.cifar100.cifar100_c import Cifar100C
from tta_bench.data.imagenet.imagenet import ImageNet
from tta_bench.data.imagenet.imagenet_c import ImageNetC
from tta_bench.plugins import registry
from tta_bench.testing.corruption_checks import sample_pictures

SMALL, LARGE = np.zeros((32, 32, 3), np.uint8), np.zeros((224, 224, 3), np.uint8)
FEW = np.arange(4)


@pytest.fixture
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTA_BENCH_CACHE", str(tmp_path / "cache"))


def of(name: str, severity: float, side: int) -> np.ndarray:
    """Two pictures, corrupted."""
    images, ids = sample_pictures(side)
    return np.stack([*corrupt(images[:2], ids[:2], name, registry.load("corruptions", name), severity, 0)])


def images_of(data: Cifar10Mini, corruption: str, severity: int = 5) -> np.ndarray:
    return data.test_images(Domain(corruption, severity), FEW).numpy()


@pytest.mark.parametrize(
    "constants",
    [
        each
        for module in (noise, blur, weather, digital, frost)
        for each in vars(module).values()
        if isinstance(each, Constants)
    ],
)
@pytest.mark.parametrize("image", [SMALL, LARGE], ids=["small", "large"])
def test_whole_severities_have_the_published_constants(constants: Constants, image: np.ndarray) -> None:
    levels = constants.small if image is SMALL else constants.large
    assert len(levels) == 6
    for severity in range(1, 6):
        assert constants.at(severity, image) is constants.at(float(severity), image) is levels[severity]


def test_constants_between_whole_severities() -> None:
    assert noise.GAUSSIAN.at(2.25, LARGE) == pytest.approx(0.135)
    assert noise.GAUSSIAN.at(0.5, LARGE) == pytest.approx(0.04)
    assert noise.SHOT.at(0.5, LARGE) == pytest.approx(120)  # half the variance of 60 photons
    assert noise.SHOT.at(1.5, LARGE) == pytest.approx(2 / (1 / 60 + 1 / 25))
    assert digital.JPEG_QUALITY.at(0.25, LARGE) == 70
    assert isinstance(digital.JPEG_QUALITY.at(4.5, LARGE), int)
    assert blur.GLASS.at(0.25, LARGE) == (pytest.approx(0.175), 1, 0)
    assert blur.GLASS.at(4.75, LARGE) == (pytest.approx(1.4), 4, 2)
    assert weather.SNOW.at(0.5, LARGE) == (0.1, 0.3, 3.0, pytest.approx(0.75), 10, 4.0, pytest.approx(0.9))


def test_constants_of_different_kinds_are_not_mixed() -> None:
    """Water up to severity 3, mud from 4 on."""
    assert weather.SPATTER.at(3.25, LARGE) == weather.SPATTER.at(3, LARGE)
    assert weather.SPATTER.at(3.75, LARGE) == weather.SPATTER.at(4, LARGE)


@pytest.mark.parametrize("severity", [-0.5, 0, 0.0, 5.25])
def test_severities_outside_do_not_exist(severity: float) -> None:
    with pytest.raises(ValueError, match="use 1 to 5"):
        noise.GAUSSIAN.at(severity, SMALL)


@pytest.mark.parametrize("side", [32, 224])
@pytest.mark.parametrize("name", GROUPS)
def test_images_change_little_by_little_from_the_clean_one(name: str, side: int) -> None:
    clean = sample_pictures(side)[0][:2].astype(float)

    def change(severity: float) -> float:
        return float(np.abs(of(name, severity, side) - clean).mean())

    for severity in (0.25, 0.75, 2.5, 4.75):
        assert of(name, severity, side).shape == clean.shape
    # The constants of some corruptions jump from 0 to 1; a third part of a severity is less than all of it.
    assert change(0.05) <= change(1) + 0.5
    assert change(0.05) < 6


@pytest.mark.parametrize(
    "name", ["gaussian_noise", "fog", "snow", "zoom_blur", "contrast", "jpeg_compression"]
)
def test_severities_between_are_between_in_strength(name: str) -> None:
    clean = sample_pictures(224)[0][:2].astype(float)
    error = [float(((of(name, s, 224) - clean) ** 2).mean()) for s in (1, 1.5, 2)]
    assert error == sorted(error)
    assert error[0] < error[1] < error[2]


def test_names_of_composed_corruptions() -> None:
    parts = (Part("fog", 3.75), Part("snow", 1.25))
    assert composed_name(parts) == "fog@3.75+snow@1.25"
    assert parts_of("fog@3.75+snow@1.25") == parts
    assert parts_of("fog@3") == (Part("fog", 3),)
    assert isinstance(parts_of("fog@3.0")[0].severity, int)  # whose generator is that of domain fog-3
    assert composed_name((Part("fog", 5), Part("snow", 0))) == "fog@5"
    assert parts_of("fog") == parts_of("fog@x") == parts_of("a@b@1") == ()
    assert plain_names("fog@3.75+snow@1.25") == ("fog", "snow")
    assert plain_names("fog") == ("fog",)


@pytest.mark.usefixtures("_own_cache")
def test_whole_severities_give_the_images_of_plain_domains() -> None:
    data = Cifar10Mini()
    for name in ("glass_blur", "snow", "shot_noise"):
        assert np.array_equal(images_of(data, f"{name}@3"), images_of(data, name, 3))
        assert np.array_equal(images_of(data, f"{name}@3.0", 1), images_of(data, name, 3))


@pytest.mark.usefixtures("_own_cache")
def test_the_second_corruption_is_applied_to_the_result_of_the_first() -> None:
    data = Cifar10Mini()
    split = data.clean_test()
    foggy = [*corrupt(split.images[:4], split.ids[:4], "fog", registry.load("corruptions", "fog"), 3.75, 0)]
    snowy = [*corrupt(foggy, split.ids[:4], "snow", registry.load("corruptions", "snow"), 1.25, 0)]
    expected = np.stack(snowy).transpose(0, 3, 1, 2) / 255
    assert np.allclose(images_of(data, "fog@3.75+snow@1.25"), expected, atol=1e-6)
    assert not np.array_equal(images_of(data, "snow@1.25+fog@3.75"), images_of(data, "fog@3.75+snow@1.25"))
    again = Cifar10Mini()  # reads the cache
    assert np.array_equal(images_of(again, "fog@3.75+snow@1.25"), images_of(data, "fog@3.75+snow@1.25"))


@pytest.mark.usefixtures("_own_cache")
def test_imagenet_applies_both_before_it_saves_the_file(tmp_path: Path) -> None:
    write_imagenet(tmp_path / "imagenet", each=6)
    data = ImageNet(root=str(tmp_path / "imagenet"), source_count=4, partial=True)
    here = [Domain("contrast@2.5+brightness@1.5", 4), Domain("contrast", 5)]
    assert data.problems(here) == []
    both, one = (data.test_images(domain, FEW).numpy() for domain in here)
    assert both.shape == one.shape
    assert not np.array_equal(both, one)


def test_frost_in_a_composed_corruption_is_noted() -> None:
    assert "frost" in Cifar10Mini().domain_note(Domain("frost@2.5+fog@2.5", 5))
    assert Cifar10Mini().domain_note(Domain("snow@2.5+fog@2.5", 5)) == ""


def test_unknown_parts_are_problems() -> None:
    (problem,) = Cifar10Mini().problems([Domain("fog@2.5+smog@2.5", 5)])
    assert "smog" in problem
    (problem,) = Cifar10Mini().problems([Domain("fog@2.5+snow@7", 5)])
    assert "7 does not exist" in problem
    (problem,) = Cifar10Mini().problems([Domain("fog@5.5", 5)])
    assert "5.5 does not exist" in problem


def test_corruptions_without_severities_between_are_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    load = registry.load

    def listed(image: np.ndarray, severity: int, rng: np.random.Generator) -> np.ndarray:
        return image // (1, 2, 3, 4, 5)[severity - 1]

    monkeypatch.setattr(registry, "load", lambda group, name: listed if name == "fog" else load(group, name))
    (problem,) = Cifar10Mini().problems([Domain("snow@2.5+fog@2.5", 5)])
    assert problem.startswith("fog: has no severity 2.5: ")
    assert Cifar10Mini().problems([Domain("snow@2.5+fog@2", 5)]) == []


@pytest.mark.parametrize(
    ("data", "other"), [(Cifar10C, "cifar10"), (Cifar100C, "cifar100"), (ImageNetC, "imagenet")]
)
def test_published_files_have_whole_severities(data: type, other: str, tmp_path: Path) -> None:
    (problem,) = data(root=str(tmp_path)).problems([Domain("fog@2.5", 5)])
    assert f"Use data {other}" in problem


def test_composed_corruptions_can_be_called() -> None:
    both = Composed(((Part("contrast", 2.5), digital.contrast), (Part("brightness", 1), weather.brightness)))
    image, rng = sample_pictures(32)[0][0], np.random.default_rng(0)
    expected = weather.brightness(digital.contrast(image, 2.5, rng), 1, rng)
    assert np.array_equal(both(image, 5, rng), expected)
