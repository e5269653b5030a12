"""`tta-bench quantize`: the calibration of a run, read or made, also of a model with parameters."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from tests.helpers.image_trees import write_classes
from tta_bench.api import Calibration, Model
from tta_bench.cache import native_code
from tta_bench.cli import app
from tta_bench.config import load
from tta_bench.execution.model_cache import ModelCache
from tta_bench.grid import expand
from tta_bench.models.timm_tags import Timm
from tta_bench_quantizers.uniform import UniformQuantizer

TAG = "test_resnet.r160_in1k"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; returns where calibrations go."""
    native_code.library("tta_bench_quantizers._core", "kernels.cpp")  # compile once for all tests
    monkeypatch.setenv("TTA_BENCH_CACHE", str(tmp_path / "cache"))
    torch.set_num_threads(1)
    return tmp_path / "cache" / "calibrations"


@pytest.fixture
def calibrations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the models that `uniform` has calibrated."""
    calibrate, made = UniformQuantizer.calibrate, list[str]()

    def counting(self: UniformQuantizer, model: Model, *rest: Any) -> Calibration:
        made.append(model.name)
        return calibrate(self, model, *rest)

    monkeypatch.setattr(UniformQuantizer, "calibrate", counting)
    return made


def quantize(*arguments: str) -> dict[str, Any]:
    command = ["quantize", "--quantizer", "uniform", "--bits", "w8a8", "--json", *arguments]
    outcome = CliRunner().invoke(app, command)
    assert outcome.exit_code == 0, outcome.output
    return json.loads(outcome.stdout)


def build(path: Path) -> Model:
    """The model of a benchmark's first cell, as a run builds it."""
    return ModelCache(torch.device("cpu")).model(expand(load(path))[0])


@pytest.mark.parametrize("first", ["run", "quantize"])
def test_a_run_and_the_command_share_a_calibration(
    first: str, folder: Path, calibrations: list[str], write_yaml: Callable[..., Path]
) -> None:
    path = write_yaml(quantizers=[{"use": "uniform", "bits": "W8A8"}], methods=["source"])
    steps = [lambda: build(path), lambda: quantize("--model", "resnet-micro")]
    for step in steps if first == "run" else reversed(steps):
        step()
    assert calibrations == ["resnet-micro"]
    assert len(list(folder.iterdir())) == 1


def test_parameters_of_the_quantizer_make_another_calibration(folder: Path, calibrations: list[str]) -> None:
    quantize("--model", "resnet-micro")
    quantize("--model", "resnet-micro", "--set", "scale=minmax")
    quantize("--model", "resnet-micro", "--set", "scale=mse")  # the default
    assert len(calibrations) == 2


@pytest.fixture
def weights(tmp_path: Path) -> list[Path]:
    """Two files of random weights."""
    paths = [tmp_path / "first.pth", tmp_path / "second.pth"]
    for seed, path in enumerate(paths):
        torch.manual_seed(seed)
        net = Timm(tag=TAG, weights="random").network()
        torch.save(net.state_dict(), path)
    return paths


def test_the_command_takes_weights(
    folder: Path,
    calibrations: list[str],
    weights: list[Path],
    tmp_path: Path,
    write_yaml: Callable[..., Path],
) -> None:
    write_classes(tmp_path / "images", each=4, size=(160, 160))
    data = ("--data", "folder", "--set-data", f"root={tmp_path / 'images'}")

    def scales(path: Path) -> list[Any]:
        found = quantize("--model", f"timm:{TAG}", "--set-model", f"weights={path}", *data)
        return [site["weight_scale"] for site in found["report"]]

    assert scales(weights[0]) != scales(weights[1])
    assert len(calibrations) == 2
    moved = weights[0].rename(tmp_path / "moved.pth")
    scales(moved)
    build(
        write_yaml(
            data={"use": "folder", "root": str(tmp_path / "images")},
            models=[{"use": "timm", "tag": TAG, "weights": str(moved)}],
            quantizers=[{"use": "uniform", "bits": "W8A8"}],
            methods=["source"],
            stream={"corruptions": ["clean"], "limit": 4, "batch_size": 2},
        )
    )
    assert len(calibrations) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set-model", "weights"], '"weights" is not of the form key=value'),
        (["--set-model", "wights=x"], "wights: unknown field"),
        (["--set-data", "seed=x"], "seed: unknown field"),
        (["--set-data", "["], "--set-data"),
    ],
)
def test_mistakes_are_named_with_their_option(arguments: list[str], message: str, folder: Path) -> None:
    command = ["quantize", "--model", "resnet-micro", "--quantizer", "uniform", *arguments]
    outcome = CliRunner().invoke(app, command)
    assert outcome.exit_code != 0
    assert message in outcome.output + str(outcome.exception)


def test_an_engine_reports_its_integer_products_and_its_agreement(folder: Path) -> None:
    found = quantize("--model", "vit-micro", "--engine", "torch-int8")
    by_site = {row["site"]: row["integer_products"] for row in found["report"]}
    assert found["integer_sites"] == len(by_site) == 26
    assert by_site["blocks.0.attn.qkv"] == 65 * 64 * 192
    assert by_site["head"] == 64 * 10
    assert sum(by_site.values()) / found["products"] == pytest.approx(0.8, abs=0.01)  # the rest is attention
    assert found["top1_agreement_percent"] >= 95
    assert "integer_sites" not in quantize("--model", "vit-micro")
