"""A user's own images in class folders, in one domain or several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.image_trees import CLASSES, write_picture
from tta_bench import config, grid, testing
from tta_bench.api import Domain
from tta_bench.data.folder import Folder
from tta_bench.errors import ConfigError

CLEAN, NIGHT = Domain("clean", 0), Domain("night", 0)


def write(root: Path, counts: dict[str, int], shift: int = 0) -> None:
    """So many images of each class."""
    for i, (name, count) in enumerate(counts.items()):
        for j in range(count):
            write_picture(root / name / f"{j}.jpg", 10 * j + i + shift, (80, 64))


def folder(root: Path, **changes: Any) -> Folder:
    return Folder(**(dict(root=str(root), input_size=32, resize=36, source_count=4) | changes))


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Two classes by day and by night, and fewer cats at night."""
    write(tmp_path / "clean", {"cat": 7, "dog": 5})
    write(tmp_path / "night", {"cat": 3, "dog": 5}, shift=1)
    return tmp_path


def test_class_folders_alone_are_one_clean_domain(tmp_path: Path) -> None:
    write(tmp_path, {"dog": 4, "cat": 6})
    data = folder(tmp_path)
    assert data.problems([CLEAN]) == []
    assert (data.num_classes, data.class_names, data.own_domains()) == (2, ("cat", "dog"), ())
    assert len(data.test_labels()) == 10 - 4
    shown = data.test_images(CLEAN, np.arange(6))
    assert shown.shape == (6, 3, 32, 32)
    tested = {file.key for file in data._slots["clean"]}
    assert not tested & {"/".join(path.parts[-2:]) for path in data.source_paths()}


def test_every_domain_has_the_same_labels(pets: Path) -> None:
    data = folder(pets)
    assert data.problems([CLEAN, NIGHT]) == []
    assert data.own_domains() == ("night",)
    labels = data.test_labels()
    assert np.bincount(labels).max() <= 5
    for domain in ("clean", "night"):
        names = [file.folder for file in data._slots[domain]]
        assert [data.class_names.index(name) for name in names] == labels.tolist()
    assert not torch.equal(data.test_images(CLEAN, np.arange(2)), data.test_images(NIGHT, np.arange(2)))
    assert data.note() == f"{len(labels)} images per domain, of up to 12 on disk"


def test_what_the_source_has_is_tested_in_no_domain(pets: Path) -> None:
    data = folder(pets)
    source = {"/".join(path.parts[-2:]) for path in data.source_paths()}
    assert all(file.key not in source for files in data._slots.values() for file in files)
    write(pets.parent / "source", {"cat": 3, "dog": 3}, shift=50)
    apart = folder(pets, source_root=str(pets.parent / "source"))
    assert len(apart.test_labels()) == 3 + 5
    assert len(apart.source_paths()) == 4
    assert apart.fingerprint() != data.fingerprint()


def test_contract(pets: Path) -> None:
    testing.check("data", "folder", root=str(pets), input_size=32, resize=36, source_count=4)


def test_imagenet_names_are_imagenet_classes(tmp_path: Path) -> None:
    write(tmp_path, {CLASSES[3]: 3, CLASSES[1]: 3})
    data = folder(tmp_path, source_count=1)
    assert data.num_classes == 1000
    assert data.classes() is None
    assert set(data.test_labels()) == {1, 3}
    few = folder(tmp_path, source_count=1, restrict=True)
    assert few.num_classes == 1000
    assert few.classes().tolist() == [1, 3]  # type: ignore[union-attr]
    assert set(few.test_labels()) == {0, 1}


def test_a_benchmark_names_its_domains(pets: Path) -> None:
    raw = {
        "name": "pets",
        "data": {"use": "folder", "root": str(pets), "source_count": 4},
        "models": [{"use": "timm", "tag": "test_vit.r160_in1k", "weights": "random", "classes": 2}],
        "methods": ["source"],
        "stream": {"corruptions": ["clean", "night"], "severity": 3},
    }
    (cell,) = grid.expand(config.parse(raw))
    assert cell.domains == (("clean", 0), ("night", 0))
    assert cell.data.params["input_size"] == 160
    with pytest.raises(ConfigError, match=r'unknown corruption "nigth". Did you mean "night"'):
        config.parse(raw | {"stream": {"corruptions": ["nigth"]}})
    with pytest.raises(ConfigError, match="has 1000 classes, and data folder has 2"):
        config.parse(raw | {"models": [{"use": "timm", "tag": "test_vit.r160_in1k"}]})
    short = config.parse(raw | {"data": f"folder:{pets}"})
    assert short.data.params == {"root": str(pets)}


def test_what_is_wrong_is_named(pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TTA_BENCH_DATA", raising=False)
    assert (
        folder(pets)
        .problems([Domain("fog", 0)])[0]
        .startswith(f"{pets}: no domain fog. There: clean, night.")
    )
    write_picture(pets / "clean" / "loose.jpg", 0)
    assert "loose.jpg: an image outside the class folders" in folder(pets).problems([CLEAN])[0]
    (pets / "clean" / "loose.jpg").unlink()
    (pets / "night" / "fish").mkdir()
    problems = folder(pets).problems([NIGHT])
    assert problems[0].startswith(f"{pets / 'clean'}: no images of class fish.")
    (pets / "night" / "fish").rmdir()
    (pets / "night" / "cat" / "1.jpg").write_bytes(b"\xff\xd8\xff half a picture")
    assert folder(pets).problems([CLEAN]) == [], "it is not read"
    (problem,) = folder(pets).problems([NIGHT])
    assert f"{pets / 'night' / 'cat' / '1.jpg'}: is damaged" in problem
    (pets / "clean").rename(pets / "day")
    (problem,) = folder(pets).problems([NIGHT])
    assert "no clean images for the source. Set data.source_root" in problem
    missing = Folder(root=str(pets / "nothing"))
    assert "there is no such folder" in missing.problems([CLEAN])[0]
    assert (missing.fingerprint(), missing.num_classes, missing.own_domains()) == ("", 0, ())


def test_folders_named_by_numbers_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    write(tmp_path, {str(number): 2 for number in range(12)})
    data = folder(tmp_path, source_count=1)
    assert data.class_names == tuple(map(str, range(12)))
    names = [file.folder for file in data._slots["clean"]]
    assert data.test_labels().tolist() == [int(name) for name in names]


def test_a_class_list_says_the_order_of_the_classes(tmp_path: Path) -> None:
    write(tmp_path / "images", {"cat": 3, "dog": 3})
    listed = tmp_path / "classes.txt"
    listed.write_text("fish\ndog\ncat\n")
    data = folder(tmp_path / "images", class_list=str(listed), source_count=1)
    assert data.problems([CLEAN]) == []
    assert data.num_classes == 3
    names = {"dog": 1, "cat": 2}
    assert data.test_labels().tolist() == [names[file.folder] for file in data._slots["clean"]]
    assert folder(tmp_path / "images", class_list=str(listed), restrict=True).classes().tolist() == [1, 2]  # type: ignore[union-attr]
    before = data.fingerprint()
    listed.write_text("cat\nfish\ndog\n")
    assert folder(tmp_path / "images", class_list=str(listed), source_count=1).fingerprint() != before
    listed.write_text("cat\nfish\n")
    (problem,) = folder(tmp_path / "images", class_list=str(listed)).problems([CLEAN])
    assert "does not name dog" in problem
    (problem,) = folder(tmp_path / "images", class_list=str(tmp_path / "none.txt")).problems([CLEAN])
    assert "cannot be read" in problem


def test_our_corruptions_are_made_from_the_clean_domain(
    pets: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTA_BENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
    noise, index = Domain("gaussian_noise", 3), np.arange(4)
    data, saved = folder(pets), folder(pets, saved_as_jpeg=True)
    assert data.problems([CLEAN, NIGHT, noise]) == []
    data.prepare(noise, 2)
    clean, exact, lossy = (
        data.test_images(CLEAN, index),
        *(d.test_images(noise, index) for d in (data, saved)),
    )
    gaps = [(noisy - clean).abs().mean() for noisy in (exact, lossy)]
    assert 0.03 < gaps[0] < 0.1, "severity 3 of a small image has a deviation of 0.08"
    assert not torch.equal(exact, lossy)
    assert torch.equal(exact, folder(pets).test_images(noise, index))
    assert "saved as JPEG of quality 85" in saved.note()
    assert "JPEG" not in data.note()
    assert "procedural texture" in data.domain_note(Domain("frost", 5))
    assert data.domain_fingerprint(noise) == data.domain_fingerprint(CLEAN) != data.domain_fingerprint(NIGHT)
    (pets / "clean").rename(pets / "day")
    (problem,) = folder(pets, source_root=str(pets / "day")).problems([noise])
    assert "no domain gaussian_noise. There: day, night." in problem
