"""CIFAR-10 from the two forms in which people have it, and from places that do not hold it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.command import tta_bench
from tta_bench.api import Domain
from tta_bench.data.cifar10.cifar10 import Cifar10
from tta_bench.data.corrupted.in_memory import Split

COUNT = 10_000
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (COUNT, 32, 32, 3), dtype=np.uint8)
LABELS = RNG.integers(0, 10, COUNT)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same images as python batches of two protocols, and as an .npz."""
    made = {}
    for protocol in (2, 4):
        folder = tmp_path_factory.mktemp(f"protocol{protocol}") / "cifar-10-batches-py"
        folder.mkdir()
        for name in ("data_batch_1", "test_batch"):
            write_batch(folder / name, protocol)
        made[f"protocol {protocol}"] = folder.parent
    made["npz"] = tmp_path_factory.mktemp("npz") / "cifar10.npz"
    np.savez(made["npz"], x_train=IMAGES, y_train=LABELS[:, None], x_test=IMAGES, y_test=LABELS)
    return made


def write_batch(path: Path, protocol: int, **changes: Any) -> None:
    rows = IMAGES.transpose(0, 3, 1, 2).reshape(COUNT, -1)
    batch = {"batch_label": "a batch", "labels": LABELS.tolist(), "data": rows, "filenames": ["a.png"] * 9}
    path.write_bytes(pickle.dumps(batch | changes, protocol))


@pytest.mark.parametrize("form", ["protocol 2", "protocol 4", "npz"])
def test_every_form_gives_the_same_data(places: dict[str, Path], form: str) -> None:
    data = Cifar10(root=str(places[form]))
    assert data.problems([Domain("fog", 5)]) == []
    assert data.test_labels().tolist() == LABELS.tolist()
    assert data.source_images().shape == (512, 3, 32, 32)
    batch = data.test_images(Domain("clean", 0), np.array([3, 9_999]))
    assert (batch * 255).round().byte().permute(0, 2, 3, 1).numpy().tolist() == IMAGES[[3, 9_999]].tolist()
    assert data.fingerprint() == Cifar10(root=str(places["npz"])).fingerprint() != ""


def test_an_instance_hashes_its_images_once(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[int] = []
    digest = Split.digest

    def noted(split: Split) -> str:
        hashed.append(len(split.labels))
        return digest(split)

    monkeypatch.setattr(Split, "digest", noted)
    data = Cifar10(root=str(places["npz"]))
    for name in ("fog", "snow", "frost"):
        data.prepare(Domain(name, 5), 2)
    assert hashed == [COUNT, 512]


def test_the_environment_may_say_where(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTA_BENCH_DATA", str(places["npz"].parent))
    assert Cifar10().problems([]) == []


class Evil:
    """Unpickling this would run a command."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("ran"),)


def test_a_batch_is_read_and_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("data_batch_1", "test_batch"):
        write_batch(tmp_path / name, 2, evil=Evil())
    assert Cifar10(root=str(tmp_path)).problems([]) == []
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda folder: None, "data_batch_1: is missing"),
        (lambda folder: (folder / "data_batch_1").write_bytes(b"\x80\x02no"), "is damaged"),
        (lambda folder: write_batch(folder / "data_batch_1", 2, labels=[1, 2]), "and 2 labels"),
        (lambda folder: write_batch(folder / "data_batch_1", 2, labels=[11] * COUNT), "Unpack the python"),
    ],
)
def test_a_bad_folder_is_named(tmp_path: Path, damage: Any, problem: str) -> None:
    damage(tmp_path)
    data = Cifar10(root=str(tmp_path))
    assert problem in data.problems([])[0]
    assert data.fingerprint() == ""


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({"x_test": IMAGES[:4]}, "has no array x_train, y_train, y_test"),
        (dict.fromkeys(("x_train", "y_train", "x_test", "y_test"), LABELS), "x_train is int64"),
        (None, "cannot be read as an .npz"),
    ],
)
def test_a_bad_npz_is_named(tmp_path: Path, arrays: dict[str, np.ndarray] | None, problem: str) -> None:
    path = tmp_path / "cifar10.npz"
    np.savez(path, **arrays) if arrays else path.write_text("no archive")
    assert problem in Cifar10(root=str(path)).problems([])[0]


def test_validate_tells_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TTA_BENCH_DATA", raising=False)
    recipe = Path(__file__).parents[2] / "recipes" / "cifar10-long.yaml"
    result = tta_bench("validate", str(recipe))
    assert result.returncode == 2
    assert "$TTA_BENCH_DATA" in result.stderr
