"""From arrays on disk and a checkpoint to records: CIFAR-100-C on WRN-40-2, with the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from numpy.lib.format import open_memmap
from typer.testing import CliRunner

from tta_bench import cli, config
from tta_bench.config.smoke import shrunk
from tta_bench.data.cifar.published_set import IMAGES, LABELS, SHAPE
from tta_bench.models.cifar.classifiers import Wrn402
from tta_bench.storage.store import ResultStore

CORRUPTIONS = ("fog", "snow")
FILE: dict[str, Any] = {
    "name": "cifar100",
    "data": "cifar100-c",
    "models": [{"use": "wrn-40-2", "classes": 100}],
    "methods": ["source", "bn-adapt"],
    "stream": {"corruptions": list(CORRUPTIONS), "severity": 5, "rounds": 1, "batch_size": 8, "limit": 16},
    "run": {"engine": "local"},
}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The benchmark file, with data where $TTA_BENCH_DATA says and weights in a file."""
    base, rng = tmp_path / "data", np.random.default_rng(0)
    (base / "cifar100-c").mkdir(parents=True)
    some, labels = rng.integers(0, 256, (520, 32, 32, 3), dtype=np.uint8), np.arange(520) % 100
    np.savez(base / "cifar100.npz", x_train=some, y_train=labels, x_test=some, y_test=labels)
    np.save(base / "cifar100-c" / LABELS, np.tile(np.arange(IMAGES) % 100, 5))
    for name in CORRUPTIONS:
        images = open_memmap(base / "cifar100-c" / f"{name}.npy", mode="w+", dtype=np.uint8, shape=SHAPE)
        images[4 * IMAGES : 4 * IMAGES + 16] = rng.integers(0, 256, (16, 32, 32, 3), dtype=np.uint8)
    weights = tmp_path / "augmix.pt"
    torch.save({"state_dict": Wrn402(weights="random", classes=100).build().net.state_dict()}, weights)
    monkeypatch.setenv("TTA_BENCH_DATA", str(base))
    path = tmp_path / "file.yaml"
    models = [FILE["models"][0] | {"weights": str(weights)}]
    path.write_text(yaml.safe_dump(FILE | {"models": models}))
    return path


def test_it_runs_from_files_to_records(file: Path, tmp_path: Path) -> None:
    outcome = CliRunner().invoke(
        cli.app, ["run", str(file), "--results", str(tmp_path / "results"), "--quiet"]
    )
    assert outcome.exit_code == 0, outcome.output
    store = ResultStore(tmp_path / "results", "cifar100")
    found = [record for row in store.manifest()["cells"] for record in store.read(row["key"])]
    assert [(record["status"], record["images"]) for record in found] == [("ok", 16)] * 4
    assert {record["corruption"] for record in found} == set(CORRUPTIONS)
    identity = store.manifest()["cells"][0]["model"]
    assert identity["fingerprint"] == Wrn402(weights=str(tmp_path / "augmix.pt"), classes=100).fingerprint()


def test_a_network_for_cifar10_does_not_fit(file: Path) -> None:
    file.write_text(yaml.safe_dump(FILE | {"models": ["wrn-40-2"]}))
    outcome = CliRunner().invoke(cli.app, ["validate", str(file)])
    assert outcome.exit_code != 0
    assert "wrn-40-2 has 10 classes, and data cifar100-c has 100" in str(outcome.exception or outcome.output)


def test_micro_replaces_data_and_networks(file: Path) -> None:
    data = [("cifar100-c", [FILE["models"][0], "resnext-29"]), ("cifar10-c", ["wrn-28-10", "wrn-40-2"])]
    for use, networks in data:
        small = shrunk(config.parse(FILE | {"data": use, "models": networks}))
        assert small.data.use == "cifar10-mini"
        assert [choice.use for choice in small.models] == ["resnet-micro"]
