"""The published CIFAR-10-C on disk, and files that are not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.lib.format import open_memmap

from tta_bench import testing
from tta_bench.api import Domain
from tta_bench.cache import content_hash
from tta_bench.data.cifar.published_set import IMAGES, LABELS, SHAPE
from tta_bench.data.cifar10.cifar10_c import Cifar10C

FOG = Domain("fog", 3)
TURNS = np.arange(IMAGES) % 10


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two corruptions of blank images, each grey level telling where it stands."""
    root = tmp_path_factory.mktemp("cifar10-c")
    np.save(root / LABELS, np.tile(TURNS, 5))
    for shift, name in enumerate(("fog", "snow")):
        images = open_memmap(root / f"{name}.npy", mode="w+", dtype=np.uint8, shape=SHAPE)
        images[:, 0, 0, 0] = np.arange(1, 6).repeat(IMAGES) * 10 + np.tile(TURNS, 5) + 100 * shift
    return root


def test_severities_are_blocks_of_ten_thousand(place: Path) -> None:
    data = Cifar10C(root=str(place))
    assert data.problems([FOG]) == []
    assert data.test_labels().tolist() == TURNS.tolist()
    shown = data.test_images(FOG, np.array([0, 7, 9_999]))
    assert (shown[:, 0, 0, 0] * 255).round().tolist() == [30, 37, 39]
    assert data.source_images().shape == (512, 3, 32, 32)


def test_contract(place: Path) -> None:
    assert not any(outcome.skipped for outcome in testing.check("data", "cifar10-c", root=str(place)))


def test_fingerprints_look_into_the_files(place: Path) -> None:
    data = Cifar10C(root=str(place))
    marks = {data.domain_fingerprint(domain) for domain in (FOG, Domain("fog", 4), Domain("snow", 3))}
    assert len(marks) == 3
    assert data.domain_fingerprint(Domain("frost", 3)) == ""


def test_every_image_of_a_domain_is_in_its_fingerprint(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(place, tmp_path / "copy")

    def marks() -> list[str]:
        data = Cifar10C(root=str(tmp_path / "copy"))
        return [data.domain_fingerprint(Domain("fog", severity)) for severity in (3, 4)]

    before = marks()
    assert before == [Cifar10C(root=str(place)).domain_fingerprint(Domain("fog", s)) for s in (3, 4)]
    images = open_memmap(tmp_path / "copy" / "fog.npy", mode="r+")
    images[2 * IMAGES + 1, 5, 5, 1] += 1  # the second image of severity 3
    images.flush()
    del images
    os.utime(tmp_path / "copy" / "fog.npy")
    after = marks()
    assert after[0] != before[0]
    assert after[1] == before[1]
    monkeypatch.setattr(content_hash, "SETTLED_SECONDS", 0.0)
    assert marks() == after
    monkeypatch.setattr(Cifar10C, "_digest", lambda self, domain: pytest.fail(f"reads {domain} again"))
    assert marks() == after


CASES: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "no labels": (lambda root: (root / LABELS).unlink(), ["labels.npy: is missing"]),
    "few labels": (lambda root: np.save(root / LABELS, TURNS), ["labels.npy: not 50000 labels"]),
    "no file": (lambda root: (root / "fog.npy").unlink(), ["fog.npy: is missing"]),
    "one severity": (
        lambda root: np.save(root / "fog.npy", np.zeros((10, 32, 32, 3), np.uint8)),
        ["fog.npy: uint8 (10, 32, 32, 3) instead of"],
    ),
    "cut short": (
        lambda root: (root / "fog.npy").write_bytes(b"\x93NUMPY\x01\x00v\x00{'descr': '|u1'"),
        ["fog.npy: is damaged or cut short"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_wrong_files_are_named(tmp_path: Path, case: str) -> None:
    np.save(tmp_path / LABELS, np.tile(TURNS, 5))
    open_memmap(tmp_path / "fog.npy", mode="w+", dtype=np.uint8, shape=SHAPE)
    change, parts = CASES[case]
    change(tmp_path)
    (problem,) = Cifar10C(root=str(tmp_path)).problems([FOG])
    for part in parts:
        assert part in problem


def test_what_it_does_not_have_is_told(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (problem,) = Cifar10C(root=str(place)).problems([Domain("clean", 0)])
    assert "Use data cifar10" in problem
    (problem,) = Cifar10C(root=str(place)).problems([Domain("frost", 5)])
    assert "frost.npy: is missing" in problem
    monkeypatch.delenv("TTA_BENCH_DATA", raising=False)
    (problem,) = Cifar10C().problems([FOG])
    assert "not part of the package" in problem
    assert Cifar10C().fingerprint() == ""
