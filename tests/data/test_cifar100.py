"""CIFAR-100 and the published CIFAR-100-C: fine labels, source images, and files that do not fit."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib.format import open_memmap

from tta_bench import testing
from tta_bench.api import Domain
from tta_bench.data.cifar.files import CIFAR100, read_splits
from tta_bench.data.cifar.published_set import IMAGES, LABELS, SHAPE
from tta_bench.data.cifar100.cifar100 import Cifar100
from tta_bench.data.cifar100.cifar100_c import Cifar100C
from tta_bench.data.problems import BadData

FOG = Domain("fog", 3)
RNG = np.random.default_rng(0)
PICTURES = RNG.integers(0, 256, (600, 32, 32, 3), dtype=np.uint8)
FINE = RNG.integers(0, 100, 600)
TURNS = np.arange(IMAGES) % 100


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What $TTA_BENCH_DATA holds: cifar100.npz, and one corruption of blank images in cifar100-c."""
    base = tmp_path_factory.mktemp("data")
    np.savez(base / "cifar100.npz", x_train=PICTURES, y_train=FINE, x_test=PICTURES, y_test=FINE)
    (base / "cifar100-c").mkdir()
    np.save(base / "cifar100-c" / LABELS, np.tile(TURNS, 5))
    images = open_memmap(base / "cifar100-c" / "fog.npy", mode="w+", dtype=np.uint8, shape=SHAPE)
    images[:, 0, 0, 0] = np.arange(1, 6).repeat(IMAGES) * 10
    return base


def write_pickle(path: Path, count: int, **changes: Any) -> None:
    rows = PICTURES[:count].transpose(0, 3, 1, 2).reshape(count, -1)
    content = {"filenames": ["a.png"] * count, "batch_label": "one", "fine_labels": FINE[:count].tolist()}
    content |= {"coarse_labels": [7] * count, "data": rows}
    path.write_bytes(pickle.dumps(content | changes, 2))


# The clean set ------------------------------------------------------------------------------------


def test_the_python_version_gives_the_fine_labels(tmp_path: Path) -> None:
    few = dataclasses.replace(CIFAR100, train_images=600, test_images=50)
    (tmp_path / "cifar-100-python").mkdir()
    write_pickle(tmp_path / "cifar-100-python" / "train", 600)
    write_pickle(tmp_path / "cifar-100-python" / "test", 50)
    train, test = read_splits(tmp_path, few, 512)
    assert train.images.tolist() == PICTURES[:512].tolist()
    assert test.labels.tolist() == FINE[:50].tolist()
    with pytest.raises(BadData, match=r"train: holds 600 images and 600 fine labels instead of 50000"):
        read_splits(tmp_path, CIFAR100, 512)


def test_labels_of_a_batch_of_cifar10_are_not_its_fine_labels(tmp_path: Path) -> None:
    few = dataclasses.replace(CIFAR100, train_images=600, test_images=50)
    write_pickle(tmp_path / "train", 600, fine_labels=[], labels=[1] * 600)
    with pytest.raises(
        BadData, match=r"and 0 fine labels instead of 600\. Unpack the python version of CIFAR"
    ):
        read_splits(tmp_path, few, 512)


def test_the_clean_set_from_the_folder_of_all_data(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTA_BENCH_DATA", str(base))
    data = Cifar100()
    assert data.problems([FOG]) == []
    assert data.test_labels().tolist() == FINE.tolist()
    assert data.source_images().shape == (512, 3, 32, 32)
    batch = data.test_images(Domain("clean", 0), np.array([3]))
    assert (batch * 255).round().byte().permute(0, 2, 3, 1).numpy().tolist() == PICTURES[[3]].tolist()


def test_an_npz_with_too_many_classes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cifar100.npz"
    np.savez(path, x_train=PICTURES, y_train=FINE + 90, x_test=PICTURES, y_test=FINE)
    assert "labels 0 to 99" in Cifar100(root=str(path)).problems([])[0]


# The published set --------------------------------------------------------------------------------


def test_the_source_is_the_first_training_images(base: Path) -> None:
    data = Cifar100C(root=str(base / "cifar100-c"))  # the clean set is found beside it
    assert data.problems([FOG]) == []
    assert data.test_labels().tolist() == TURNS.tolist()
    assert (data.test_images(FOG, np.array([0, 9_999]))[:, 0, 0, 0] * 255).round().tolist() == [30, 30]
    first = (data.source_images()[0] * 255).round().byte().permute(1, 2, 0)
    assert first.numpy().tolist() == PICTURES[0].tolist()


def test_the_source_is_part_of_the_fingerprint(base: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.npz"
    np.savez(other, x_train=255 - PICTURES, y_train=FINE, x_test=PICTURES, y_test=FINE)
    root = str(base / "cifar100-c")
    marks = {Cifar100C(root=root, cifar100_root=place).fingerprint() for place in ("", str(other))}
    assert len(marks) == 2
    assert "" not in marks


def test_contract(base: Path) -> None:
    outcomes = testing.check("data", "cifar100-c", root=str(base / "cifar100-c"))
    assert not any(outcome.skipped for outcome in outcomes)


def test_missing_source_images_are_told_with_a_remedy(base: Path, tmp_path: Path) -> None:
    data = Cifar100C(root=str(base / "cifar100-c"), cifar100_root=str(tmp_path / "nowhere"))
    (problem,) = data.problems([FOG])
    assert "nowhere: does not exist" in problem
    assert "data.cifar100_root" in problem
    assert data.fingerprint() == ""


def test_labels_of_more_than_100_classes_are_refused(base: Path, tmp_path: Path) -> None:
    np.save(tmp_path / LABELS, np.tile(TURNS + 1, 5))
    (problem,) = Cifar100C(root=str(tmp_path), cifar100_root=str(base / "cifar100.npz")).problems([FOG])
    assert "labels.npy: not 50000 labels from 0 to 99" in problem


def test_clean_images_are_in_the_other_data(base: Path) -> None:
    (problem,) = Cifar100C(root=str(base / "cifar100-c")).problems([Domain("clean", 0)])
    assert problem == "clean: CIFAR-100-C has no clean images. Use data cifar100 for clean images."
