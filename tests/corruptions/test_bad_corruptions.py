"""Corruptions that return something else than an image like the one they were given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from tests.helpers.image_trees import write_imagenet
from tta_bench import cli, testing
from tta_bench.api import Domain
from tta_bench.corruptions.apply import BadCorruption, corrupt
from tta_bench.data.cifar10.mini import Cifar10Mini
from tta_bench.data.imagenet.imagenet import ImageNet
from tta_bench.storage.store import ResultStore

PLUGIN = """
import numpy as np

def as_float(image, severity, rng):
    return image / 2  # float64

def as_int(image, severity, rng):
    return image.astype(int) // 2

def cropped(image, severity, rng):
    return image[1:]

def grey(image, severity, rng):
    return image.mean(2).astype(np.uint8)

def nan(image, severity, rng):
    return np.full(image.shape, np.nan, np.float32)

def nothing(image, severity, rng):
    image //= 2

def lazy(image, severity, rng):
    yield image

def listed(image, severity, rng):
    return image.tolist()

def in_place(image, severity, rng):
    image //= 2
    return image
"""
WRONG = {
    "as_float": "float64 (32, 32, 3)",
    "as_int": "int64 (32, 32, 3)",
    "cropped": "uint8 (31, 32, 3)",
    "grey": "uint8 (32, 32)",
    "nan": "float32 (32, 32, 3)",
    "nothing": "None",
    "lazy": "an object of type generator",
    "listed": "an object of type list",
}


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions above as a package's corruptions, for this process."""
    folder = tmp_path / "plugins"
    facts = folder / "wrong-1.0.dist-info"
    facts.mkdir(parents=True)
    (folder / "wrong_corruptions.py").write_text(PLUGIN)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: wrong\nVersion: 1.0\n")
    points = "\n".join(f"{name} = wrong_corruptions:{name}" for name in (*WRONG, "in_place"))
    (facts / "entry_points.txt").write_text(f"[tta_bench.corruptions]\n{points}\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("TTA_BENCH_CACHE", str(tmp_path / "cache"))


def message(name: str) -> str:
    """What a user is told."""
    return f'corruption "{name}": returned {WRONG[name]} instead of a uint8 array (32, 32, 3).'


@pytest.mark.parametrize("name", WRONG)
def test_the_error_names_the_corruption_and_what_it_returned(name: str) -> None:
    with pytest.raises(BadCorruption) as raised:
        Cifar10Mini().prepare(Domain(name, 5), 2)
    assert str(raised.value).startswith(message(name))
    with pytest.raises(BadCorruption):
        Cifar10Mini().test_images(Domain(name, 5), np.arange(2))


@pytest.mark.parametrize("name", WRONG)
def test_the_contract_suite_finds_it(name: str) -> None:
    with pytest.raises(testing.ContractBroken) as raised:
        testing.check("corruptions", name)
    assert message(name) in str(raised.value)


def test_the_failed_cell_names_it_and_others_go_on(write_yaml: Callable[..., Path], tmp_path: Path) -> None:
    stream = {"corruptions": ["fog", "as_float"], "severity": 5, "rounds": 1, "batch_size": 16, "limit": 32}
    file = write_yaml(methods=["source"], quantizers=["fp32"], stream=stream)
    results = tmp_path / "results"
    outcome = CliRunner().invoke(cli.app, ["run", str(file), "--results", str(results)])
    assert outcome.exit_code == 1, outcome.output
    assert 'corruption "as_float": returned float64' in outcome.stderr
    domains = [record for record in records(results) if "corruption" in record]
    assert {record["corruption"]: record["status"] for record in domains} == {
        "fog": "ok",
        "as_float": "failed",
    }
    (failed,) = (record for record in domains if record["status"] == "failed")
    assert message("as_float") in failed["reason"].splitlines()[-1]
    status = CliRunner().invoke(cli.app, ["status", "--results", str(results)])
    assert 'corruption "as_float": returned float64' in status.stdout


def records(results: Path) -> Iterator[dict[str, Any]]:
    store = ResultStore(results, "small")
    return (record for row in store.manifest()["cells"] for record in store.read(row["key"]))


def test_files_made_of_imagenet_are_checked_too(tmp_path: Path) -> None:
    write_imagenet(tmp_path / "imagenet", each=2)
    data = ImageNet(root=str(tmp_path / "imagenet"), partial=True, source_count=2)
    with pytest.raises(BadCorruption, match=r'"grey": returned uint8 \(224, 224\)'):
        data.test_images(Domain("grey", 5), np.arange(1))


def test_a_corruption_cannot_change_the_clean_images() -> None:
    data, clean, index = Cifar10Mini(), Domain("clean", 0), np.arange(4)
    before = data.test_images(clean, index)
    data.prepare(Domain("in_place", 5), 4)
    assert torch.equal(data.test_images(clean, index), before)
    images = np.full((2, 4, 4, 3), 200, np.uint8)
    (one, two) = corrupt(
        images, range(2), "in_place", lambda image, severity, rng: np.negative(image, image), 5, 0
    )
    assert {*one.ravel(), *two.ravel()} == {56}
    assert set(images.ravel()) == {200}
