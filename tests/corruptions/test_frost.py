"""Frost: the statistics of its texture, and the original photographs in its place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from tests.helpers.image_trees import write_imagenet
from tta_bench import cli, config, grid
from tta_bench.api import Domain
from tta_bench.corruptions.apply import corrupt, rng_of, version_of
from tta_bench.corruptions.frost import SHARES, Frost, frost, made_here
from tta_bench.data.cifar10.mini import Cifar10Mini
from tta_bench.data.corrupted.frost_images import STEMS
from tta_bench.data.imagenet.imagenet import ImageNet
from tta_bench.data.images.pixels import to_tensor
from tta_bench.errors import UserError
from tta_bench.plugins import registry
from tta_bench.storage.store import ResultStore

FROST, FOG = Domain("frost", 5), Domain("fog", 5)
BLACK = np.zeros((224, 224, 3), np.uint8)


def crops(side: int, count: int = 100) -> np.ndarray:
    """Random crops of the texture as images of this side get it, [count, side, side, 3]."""
    rng, sheets = np.random.default_rng(0), made_here().scaled(side)
    places = rng.integers(0, len(sheets[0]) - side + 1, (count, 2))
    return np.stack([sheets[i % 5][y : y + side, x : x + side] for i, (y, x) in enumerate(places)]) * 1.0


def power_exponent(images: np.ndarray) -> float:
    """How the power of square grey images falls with the frequency, between 4 and 64 waves a side."""
    side = images.shape[1]
    window = np.hanning(side)[:, None] * np.hanning(side)
    waves = np.fft.fft2((images - images.mean((1, 2), keepdims=True)) * window)
    radius = np.hypot(*np.meshgrid(*[np.fft.fftfreq(side) * side] * 2)).round().astype(int).ravel()
    power = np.bincount(radius, (np.abs(waves) ** 2).mean(0).ravel()) / np.bincount(radius)
    return -float(np.polyfit(np.log(np.arange(4, 65)), np.log(power[4:65]), 1)[0])


# The texture --------------------------------------------------------------------------------------


def test_the_texture_has_the_mean_and_spread_of_the_photographs() -> None:
    found = crops(224)
    assert found.mean() == pytest.approx(160, abs=2)
    assert found.mean(3).std((1, 2)).mean() == pytest.approx(24, abs=1)
    assert crops(32).mean() == pytest.approx(160, abs=2)
    assert crops(32).mean(3).std((1, 2)).mean() == pytest.approx(24, abs=1.5)


def test_the_power_of_the_texture_falls_as_in_a_photograph() -> None:
    assert power_exponent(crops(224).mean(3)) == pytest.approx(1.6, abs=0.15)


def test_small_images_get_every_fifth_pixel_of_the_texture() -> None:
    for small, sheet in zip(made_here().scaled(32), made_here().photographs, strict=True):
        assert np.array_equal(small, sheet[2::5, 2::5][: len(small), : len(small)])


def test_frost_is_as_hard_as_with_the_photographs() -> None:
    split = Cifar10Mini()._test
    images = np.stack([*corrupt(split.images[:300], split.ids[:300], "frost", frost, 5, 0)])
    with torch.no_grad():
        model = registry.load("models", "resnet-micro")().build()
        accuracy = (model(to_tensor(images)).argmax(1).numpy() == split.labels[:300]).mean()
    assert 0.45 < accuracy < 0.60, "photographs: 0.524; a smooth and dark texture: 0.70"


def test_images_larger_than_the_texture_are_covered() -> None:
    large = frost(np.zeros((600, 520, 3), np.uint8), 5, np.random.default_rng(0))
    assert large.min(2).mean(1).min() > 60, "a row without frost"


def test_only_frost_has_a_new_version() -> None:
    versions = {name: version_of(registry.load("corruptions", name)) for name in ("snow", "fog", "frost")}
    assert versions == {"snow": "1", "fog": "1", "frost": "2"}


# The original photographs -------------------------------------------------------------------------


def write_photographs(folder: Path, size: tuple[int, int] = (300, 260), shift: int = 0) -> Path:
    """Five plain photographs of 40, 80 … 200 grey levels, as ImageNet-C names them; and an unused one."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, stem in enumerate((*STEMS, "frost6"), start=1):
        suffix = "png" if number <= 3 else "jpg"
        Image.new("RGB", size, (40 * number + shift,) * 3).save(folder / f"{stem}.{suffix}", quality=100)
    return folder


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    return write_photographs(tmp_path / "photographs")


def test_photographs_are_mixed_in_the_published_shares(photographs: Path) -> None:
    function = Cifar10Mini(frost_images=str(photographs)).corruption("frost")
    for image, share in ((BLACK, SHARES.large[5][1]), (BLACK[:32, :32], SHARES.small[5][1])):
        results = [function(image, 5, rng_of(0, "frost", 5, number)) for number in range(60)]
        levels = {int(result[0, 0, 0]) for result in results}
        assert all(np.ptp(result) <= 1 for result in results), "a plain photograph gives a plain image"
        assert levels == {int(share * 40 * number + 1e-3) for number in range(1, 6)}, "the sixth is unused"


def test_a_colour_photograph_keeps_its_channels(tmp_path: Path) -> None:
    folder = write_photographs(tmp_path / "red")
    for path in folder.iterdir():
        Image.new("RGB", (300, 300), (200, 100, 0)).save(path)
    result = Cifar10Mini(frost_images=str(folder)).corruption("frost")(BLACK, 5, np.random.default_rng(0))
    assert result.mean((0, 1)) == pytest.approx([150, 75, 0], abs=2)


def test_a_photograph_is_shrunk_as_the_original_does() -> None:
    photograph = np.random.default_rng(0).integers(0, 256, (233, 307, 3), dtype=np.uint8)
    (small,) = Frost((photograph,)).scaled(32)
    assert np.array_equal(small, cv2.resize(photograph, (0, 0), fx=0.2, fy=0.2))


def test_photographs_belong_to_the_frost_domain_alone(photographs: Path, tmp_path: Path) -> None:
    plain, data = Cifar10Mini(), Cifar10Mini(frost_images=str(photographs))
    moved = Cifar10Mini(frost_images=str(write_photographs(tmp_path / "elsewhere")))
    other = Cifar10Mini(frost_images=str(write_photographs(tmp_path / "other", shift=1)))
    assert data.fingerprint() == plain.fingerprint()
    assert data.domain_fingerprint(FOG) == plain.domain_fingerprint(FROST) == ""
    marks = [each.domain_fingerprint(FROST) for each in (data, moved, other)]
    assert marks[0] == marks[1] != marks[2]


def test_corrupted_images_of_other_photographs_are_not_reused(
    photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTA_BENCH_CACHE", str(tmp_path / "cache"))
    other = write_photographs(tmp_path / "other", shift=15)
    index = np.arange(4)
    made = [Cifar10Mini(frost_images=str(f)).test_images(FROST, index) for f in ("", photographs, other)]
    assert not any(torch.equal(made[i], made[j]) for i, j in ((0, 1), (1, 2), (0, 2)))
    again = Cifar10Mini(frost_images=str(photographs)).test_images(FROST, index)
    assert torch.equal(made[1], again)


def test_imagenet_takes_the_photographs_too(
    photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTA_BENCH_CACHE", str(tmp_path / "cache"))
    write_imagenet(tmp_path / "imagenet", each=2)
    facts: dict[str, Any] = {"root": str(tmp_path / "imagenet"), "partial": True, "source_count": 2}
    plain, data = ImageNet(**facts), ImageNet(**facts, frost_images=str(photographs))
    assert data.problems([FROST]) == plain.problems([FROST]) == []
    index = np.arange(2)
    assert not torch.equal(data.test_images(FROST, index), plain.test_images(FROST, index))
    assert torch.equal(data.test_images(FOG, index), plain.test_images(FOG, index))


def keys_of(tmp_path: Path, corruptions: str, frost_images: str) -> set[str]:
    file = tmp_path / "benchmark.yaml"
    file.write_text(
        f"name: x\ndata: {{use: cifar10-mini, frost_images: '{frost_images}'}}\nmodels: [vit-micro]\n"
        f"methods: [source]\nstream: {{corruptions: [{corruptions}], limit: 8, rounds: 1}}\n"
    )
    return {cell.key for cell in grid.expand(config.load(file))}


def test_keys_know_the_content_of_the_photographs(photographs: Path, tmp_path: Path) -> None:
    moved, other = write_photographs(tmp_path / "a"), write_photographs(tmp_path / "b", shift=1)
    plain, with_them, in_another_place, with_others = (
        keys_of(tmp_path, "frost", str(folder)) for folder in ("", photographs, moved, other)
    )
    assert with_them == in_another_place
    assert plain.isdisjoint(with_them | with_others)
    assert with_them.isdisjoint(with_others)
    assert keys_of(tmp_path, "fog", "") == keys_of(tmp_path, "fog", str(photographs))


def test_the_note_says_which_frost_it_is(photographs: Path) -> None:
    assert Cifar10Mini().domain_note(FROST) == (
        "frost from a procedural texture, not from the original photographs"
    )
    data = Cifar10Mini(frost_images=str(photographs))
    assert data.domain_note(FROST) == (
        f"frost from photographs in frost_images, SHA-256 {data.domain_fingerprint(FROST)[:12]}"
    )
    assert data.domain_note(FOG) == ""


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    data = Cifar10Mini(frost_images=str(tmp_path / "none"))
    (problem,) = data.problems([FROST])
    assert "none: there is no such folder" in problem
    assert "data.frost_images" in problem
    assert data.problems([FOG]) == [], "fog needs none"
    assert data.domain_fingerprint(FROST) == ""


def test_a_missing_photograph_is_named(photographs: Path) -> None:
    (photographs / "frost2.png").unlink()
    (photographs / "frost5.jpg").unlink()
    (problem,) = Cifar10Mini(frost_images=str(photographs)).problems([FROST])
    assert "has no image frost2, frost5" in problem


def test_two_photographs_of_one_number_are_refused(photographs: Path) -> None:
    (photographs / "frost1.jpg").write_bytes((photographs / "frost1.png").read_bytes())
    (problem,) = Cifar10Mini(frost_images=str(photographs)).problems([FROST])
    assert "frost1.png, frost1.jpg" in problem


@pytest.mark.parametrize("content", [b"", b"no image", b"\x89PNG\r\n\x1a\n"])
def test_a_damaged_photograph_is_named(photographs: Path, content: bytes) -> None:
    (photographs / "frost3.png").write_bytes(content)
    (problem,) = Cifar10Mini(frost_images=str(photographs)).problems([FROST])
    assert "frost3.png" in problem


def test_photographs_that_are_too_small_are_named_with_their_sizes(tmp_path: Path) -> None:
    small = write_photographs(tmp_path / "small", size=(300, 150))
    problems = Cifar10Mini(frost_images=str(small)).problems([FROST])
    assert len(problems) == 5
    assert "frost1.png: has 300 x 150 pixels, of which 60 x 30 remain for images of 32 pixels" in problems[0]
    fitting = write_photographs(tmp_path / "fitting", size=(160, 160))
    assert Cifar10Mini(frost_images=str(fitting)).problems([FROST]) == []
    with pytest.raises(UserError, match="160 x 160 pixels where it is used, and the image 224 x 224"):
        Cifar10Mini(frost_images=str(fitting)).corruption("frost")(BLACK, 5, np.random.default_rng(0))


@pytest.mark.usefixtures("no_bytes")
def test_the_record_says_which_frost_was_used(
    photographs: Path, write_yaml: Callable[..., Path], tmp_path: Path
) -> None:
    notes: list[set[str]] = []
    for corruption, folder in (("frost", ""), ("frost", str(photographs)), ("fog", "")):
        stream = {"corruptions": [corruption], "severity": 5, "rounds": 1, "batch_size": 8, "limit": 8}
        data = {"use": "cifar10-mini", "frost_images": folder}
        file = write_yaml(data=data, methods=["source"], quantizers=["fp32"], stream=stream)
        results = tmp_path / f"results{len(notes)}"
        outcome = CliRunner().invoke(cli.app, ["run", str(file), "--results", str(results)])
        assert outcome.exit_code == 0, outcome.output
        store = ResultStore(results, "small")
        notes.append(
            {(store.description(row["key"]) or {})["data_note"] for row in store.manifest()["cells"]}
        )
    with_them = Cifar10Mini(frost_images=str(photographs)).domain_note(FROST)
    assert notes == [{Cifar10Mini().domain_note(FROST)}, {with_them}, {""}]


def test_a_run_without_the_photographs_is_refused_at_once(write_yaml: Callable[..., Path]) -> None:
    stream = {"corruptions": ["frost"], "severity": 5, "rounds": 1, "batch_size": 8, "limit": 8}
    file = write_yaml(data={"use": "cifar10-mini", "frost_images": "nowhere"}, stream=stream)
    outcome = CliRunner().invoke(cli.app, ["validate", str(file)])
    assert isinstance(outcome.exception, UserError)
    assert "nowhere: there is no such folder. Set data.frost_images" in str(outcome.exception)
