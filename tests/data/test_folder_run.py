"""A benchmark over a folder of images: other pixels are other numbers, and a file is hashed once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image
from typer.testing import CliRunner

from tests.helpers.image_trees import files_hashed, pictures
from tta_bench import cli, config, grid
from tta_bench.cache import content_hash
from tta_bench.data import folder
from tta_bench.data.cifar10.mini import Cifar10Mini
from tta_bench.data.images import class_folders
from tta_bench.storage.store import ResultStore

FILE: dict[str, Any] = {
    "name": "bmp",
    "data": {"use": "folder", "source_count": 10, "input_size": 32, "resize": 32},
    "models": ["resnet-micro", "vit-micro"],
    "methods": ["source", "t3a"],
    "stream": {"corruptions": ["clean", "night"], "rounds": 2, "batch_size": 20},
    "run": {"engine": "local"},
}
IMAGES = 60


def paint(root: Path, change: Callable[[np.ndarray], np.ndarray] = lambda pixels: pixels) -> None:
    """CIFAR-10 as BMP files, which all have the same size."""
    for i, label in enumerate(Cifar10Mini().test_labels()[:IMAGES]):
        path = root / f"class{label}" / f"{i}.bmp"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(change(pictures()[i])).save(path)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two domains of the test, one that no benchmark names, and an empty cache."""
    monkeypatch.setenv("TTA_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(content_hash, "SETTLED_SECONDS", 0.0)
    paint(tmp_path / "photos" / "clean")
    paint(tmp_path / "photos" / "night", lambda pixels: pixels // 2)
    paint(tmp_path / "photos" / "unused")
    return tmp_path / "photos"


@pytest.fixture
def run(root: Path, tmp_path: Path, no_bytes: None) -> Callable[..., str]:
    """`tta-bench run`; returns what it says."""

    def run(*flags: str, **changes: Any) -> str:
        file = tmp_path / "bmp.yaml"
        file.write_text(yaml.safe_dump(FILE | {"data": {**FILE["data"], "root": str(root)}} | changes))
        arguments = ["run", str(file), "--results", str(tmp_path / "results"), *flags]
        outcome = CliRunner().invoke(cli.app, arguments)
        assert outcome.exit_code == 0, outcome.output
        return outcome.stderr

    return run


def correct(results: Path) -> dict[tuple[str, str], int]:
    """Images that Source has right, by model and domain."""
    store = ResultStore(results, "bmp")
    return {
        (row["model"]["use"], record["corruption"]): record["correct"]
        for row in store.manifest()["cells"]
        if row["method"]["use"] == "source"
        for record in store.read(row["key"])
        if "correct" in record
    }


def test_overwritten_images_of_equal_size_are_computed_again(
    run: Callable[..., str], root: Path, tmp_path: Path
) -> None:
    run()
    before = correct(tmp_path / "results")
    assert "nothing left to run" in run()
    sizes = {path: path.stat().st_size for path in root.rglob("*.bmp")}
    paint(root / "night", lambda pixels: 255 - pixels)
    assert {path: path.stat().st_size for path in root.rglob("*.bmp")} == sizes
    assert "ran 4; 4 done" in run()
    after = correct(tmp_path / "results")
    shutil.rmtree(tmp_path / "results")
    shutil.rmtree(tmp_path / "cache")
    run()
    assert after == correct(tmp_path / "results"), "the numbers of an untouched results folder and cache"
    changed = {place for place in before if before[place] != after[place]}
    assert changed
    assert {domain for _, domain in changed} == {"night"}


def test_one_run_hashes_each_file_once_and_the_next_none(
    run: Callable[..., str], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[Path] = []
    images_in = class_folders.images_in

    def noted(path: Path, name: str) -> list[class_folders.ImageFile]:
        listed.append(path)
        return images_in(path, name)

    for module in (class_folders, folder):
        monkeypatch.setattr(module, "images_in", noted)
    read = files_hashed(monkeypatch)
    run()
    assert len(read) == len(set(read))
    assert {path.relative_to(root).parts[0] for path in read} == {"clean", "night"}, "what the grid names"
    assert listed.count(root / "night" / "class3") == 3, "for the key, the checks, and the images"
    read.clear()
    assert "nothing left to run" in run()
    run("--overwrite", "all")
    assert read == []


def test_images_elsewhere_are_the_same_images(root: Path, tmp_path: Path) -> None:
    def keys(place: Path, *names: str) -> list[str]:
        stream = {**FILE["stream"], "corruptions": list(names)}
        raw = FILE | {"data": {**FILE["data"], "root": str(place)}, "stream": stream}
        return [cell.key for cell in grid.expand(config.parse(raw))]

    shutil.copytree(root, tmp_path / "copy")
    assert keys(tmp_path / "copy", "clean", "night") == keys(root, "clean", "night")
    paint(tmp_path / "copy" / "night", lambda pixels: 255 - pixels)
    assert keys(tmp_path / "copy", "clean") == keys(root, "clean"), "it is not shown"
    assert not set(keys(tmp_path / "copy", "clean", "night")) & set(keys(root, "clean", "night"))
    paint(tmp_path / "copy" / "unused", lambda pixels: 255 - pixels)
    (tmp_path / "copy" / "clean" / "class3").rename(tmp_path / "copy" / "clean" / "zebra")
    (tmp_path / "copy" / "night" / "class3").rename(tmp_path / "copy" / "night" / "zebra")
    (tmp_path / "copy" / "unused" / "class3").rename(tmp_path / "copy" / "unused" / "zebra")
    assert not set(keys(tmp_path / "copy", "clean")) & set(keys(root, "clean")), (
        "labels are numbered otherwise"
    )
