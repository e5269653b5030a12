"""The 5 000 images of RobustBench: the list itself, and data that reads only these, in their order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.image_trees import val_name, write_picture
from tta_bench import config, grid
from tta_bench.api import Domain
from tta_bench.data.imagenet import wnids
from tta_bench.data.imagenet.imagenet import ImageNet
from tta_bench.data.imagenet.imagenet_c import ImageNetC
from tta_bench.data.imagenet.subsets import checked, listed
from tta_bench.errors import ConfigError
from tta_bench.plugins.identity import identify

CLEAN, FOG = Domain("clean", 0), Domain("fog", 5)
LIST = listed("robustbench-5000")
PART = LIST[:8]
OTHERS = [f"{line.split('/')[0]}/{val_name(50_000 - i)}" for i, line in enumerate(LIST[:6])]


@pytest.fixture
def sets(tmp_path: Path) -> Path:
    """The first 8 images of the list and 6 others, as ImageNet and as ImageNet-C."""
    for number, key in enumerate((*PART, *OTHERS)):
        write_picture(tmp_path / "imagenet" / "val" / key, number, (300, 260))
        write_picture(tmp_path / "imagenet-c" / "fog" / "5" / key, number + 100)
    return tmp_path


def imagenet(sets: Path, **params: object) -> ImageNet:
    given = {"root": str(sets / "imagenet"), "source_count": 4, "partial": True} | params
    return ImageNet(subset="robustbench-5000", **given)  # type: ignore[arg-type]


def imagenet_c(sets: Path, **params: object) -> ImageNetC:
    given = {"root": str(sets / "imagenet-c"), "source_count": 4, "partial": True} | params
    return ImageNetC(subset="robustbench-5000", **given)  # type: ignore[arg-type]


def test_the_list_is_the_published_one() -> None:
    assert len(LIST) == len(set(LIST)) == 5_000
    classes, numbers = zip(*(line.split("/ILSVRC2012_val_") for line in LIST), strict=True)
    assert len(set(classes)) == 997
    assert set(classes) <= set(wnids.imagenet())
    counts = np.unique(classes, return_counts=True)[1]
    assert (counts.min(), counts.max()) == (1, 12)
    found = [int(number.removesuffix(".JPEG")) for number in numbers]
    assert (min(found), max(found)) == (11, 49_999)


def test_another_list_is_refused_and_line_endings_do_not_matter() -> None:
    sha256 = "49cc660768bb59fb01b0b6b0b9858489592dc1a6dbbc86dfc7e62edcc843a656"
    content = "\r\n".join(LIST).encode()
    assert checked(content, "list", sha256) == LIST
    with pytest.raises(ValueError, match="not the published list"):
        checked(content.replace(b"n01", b"n02", 1), "list", sha256)


def test_only_listed_images_are_tested_in_their_order(sets: Path) -> None:
    data = imagenet(sets)
    assert data.problems([CLEAN]) == []
    assert [file.key for file in data.tested()] == list(PART)
    expected = [wnids.imagenet().index(key.split("/")[0]) for key in PART]
    assert data.test_labels().tolist() == expected
    whole = ImageNet(root=str(sets / "imagenet"), source="shared", partial=True)
    place = [file.key for file in whole.tested()].index(PART[3])
    ours, theirs = data.test_images(CLEAN, np.array([3])), whole.test_images(CLEAN, np.array([place]))
    assert np.array_equal(ours.numpy(), theirs.numpy())


def test_source_images_are_held_out_of_the_others(sets: Path) -> None:
    data = imagenet(sets)
    keys = {f"{path.parent.name}/{path.name}" for path in data.source_paths()}
    assert len(keys) == 4
    assert keys <= set(OTHERS)
    greedy = imagenet(sets, source_count=512)  # more than there are
    assert len(greedy.tested()) == 8
    assert {f"{path.parent.name}/{path.name}" for path in greedy.source_paths()} == set(OTHERS)


@pytest.mark.parametrize("with_val", [True, False])
def test_imagenet_c_reads_the_listed_images(sets: Path, with_val: bool) -> None:
    if not with_val:  # then the source comes from train
        (sets / "imagenet" / "val").rename(sets / "imagenet" / "train")
    data = imagenet_c(sets, **({} if with_val else {"source": "train"}))
    assert [file.key for file in data.tested()] == list(PART)
    assert data.problems([FOG]) == []
    assert data.test_images(FOG, np.arange(8)).shape == (8, 3, 224, 224)


def test_missing_images_are_a_problem(sets: Path) -> None:
    (problem,) = imagenet(sets, partial=False).problems([CLEAN])
    assert "4992 of the 5000 images of data.subset are missing" in problem
    for key in PART:
        (sets / "imagenet" / "val" / key).unlink()
    (problem,) = imagenet(sets).problems([CLEAN])
    assert "5000 of the 5000" in problem


def test_missing_images_of_a_domain_are_a_problem(sets: Path) -> None:
    (sets / "imagenet-c" / "fog" / "5" / PART[0]).unlink()
    (problem,) = imagenet_c(sets).problems([FOG])
    assert PART[0] in problem


@pytest.mark.parametrize("name", ["imagenet", "imagenet-c"])
def test_the_subset_is_in_the_key_and_its_absence_is_not(name: str) -> None:
    facts = [
        identify("data", name, {"source_count": 8, "subset": subset}, "2", "").key_facts
        for subset in ("all", "robustbench-5000")
    ]
    assert facts[0]["params"] == {"source_count": 8}
    assert facts[1]["params"] == {"source_count": 8, "subset": "robustbench-5000"}


def test_a_sampler_that_needs_more_images_is_refused_with_the_grid(
    sets: Path, write_yaml: Callable[..., Path]
) -> None:
    """NOTE's needs 10 for each of 1000 classes; the whole set has 50 000."""
    assert (imagenet(sets).expected_images(), ImageNet(root=str(sets)).expected_images()) == (5000, 50_000)
    data = {"use": "imagenet", "root": str(sets / "imagenet"), "partial": True, "source_count": 4}
    stream = {"corruptions": ["fog"], "scenario": {"use": "correlated", "sampler": "note"}}
    known = {"models": ["vit-b"], "quantizers": ["fp32"], "methods": ["source"], "stream": stream}
    assert grid.expand(config.load(write_yaml(data=data, **known)))
    file = write_yaml(data=data | {"subset": "robustbench-5000"}, **known)
    with pytest.raises(ConfigError, match=r"correlated: .*10 images"):
        grid.expand(config.load(file))
