"""Warnings about grids that run, and whose numbers would mislead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tta_bench import config, grid
from tta_bench.cli import app
from tta_bench.data.cifar10.mini import Cifar10Mini
from tta_bench.grid import Cell
from tta_bench.models.micro import ResNetMicro
from tta_bench.planning import estimate
from tta_bench.planning.cautions import cautions, expected_classes

FILE: dict[str, Any] = {
    "name": "cautious",
    "data": "cifar10-mini",
    "models": ["resnet-micro", "vit-micro"],
    "methods": ["source", "bn-adapt", "tent", "zoa"],
    "stream": {"corruptions": "clean", "order": "sequential", "rounds": 1},
}
SORTED = np.repeat(np.arange(10), 200)


def cells(**changes: Any) -> list[Cell]:
    return grid.expand(config.parse(FILE | changes))


@pytest.fixture
def by_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """Test images in the order of their classes."""
    monkeypatch.setattr(Cifar10Mini, "test_labels", lambda self: SORTED)


def test_what_is_fine_is_not_warned_of() -> None:
    assert cautions(cells()) == []


def test_expected_classes_by_hand() -> None:
    assert expected_classes(np.array([0, 1]), 1) == 1
    assert expected_classes(np.array([0, 1]), 2) == 1.5
    assert expected_classes(np.array([0, 0, 0, 1]), 2) == pytest.approx(1 - 1 / 16 + 1 - 9 / 16)


@pytest.mark.usefixtures("by_class")
def test_batches_in_class_order_are_warned_of_where_batch_statistics_are_used() -> None:
    (warning,) = cautions(cells())
    assert "batches of 64 hold 1.3 classes, shuffled ones 10.0" in warning
    assert "bn-adapt on resnet-micro, tent on resnet-micro, zoa on resnet-micro" in warning
    assert "source" not in warning
    assert "vit-micro" not in warning
    assert "Set stream.order to shuffled" in warning
    shuffled = {"corruptions": "clean", "order": "shuffled", "rounds": 1}
    assert cautions(cells(stream=shuffled)) == []
    assert cautions(cells(methods=["source"])) == []
    assert cautions(cells(stream=FILE["stream"] | {"batch_size": 1}, methods=["bn-adapt"])) == []


@pytest.mark.usefixtures("by_class")
@pytest.mark.parametrize("scenarios", [["continual", "correlated"], ["correlated", "continual"]])
def test_a_warning_does_not_depend_on_the_order_of_scenarios(scenarios: list[str]) -> None:
    """Before: only the last scenario was looked at, and one that orders by label is not warned of."""
    (warning,) = cautions(cells(stream=FILE["stream"] | {"scenario": scenarios}))
    assert "batches of 64 hold 1.3 classes" in warning


@pytest.mark.usefixtures("by_class")
def test_a_limit_that_leaves_few_classes_is_warned_of() -> None:
    stream = {"corruptions": "clean", "rounds": 1, "limit": 300}
    (warning,) = cautions(cells(stream=stream))
    assert "its first 300 images show 2 classes, where 10 are to be expected" in warning


def test_source_images_in_class_order_or_of_other_classes_are_warned_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def labelled(labels: np.ndarray) -> list[str]:
        monkeypatch.setattr(Cifar10Mini, "source_labels", lambda self: labels)
        return cautions(cells())

    mixed = np.arange(512) % 10
    assert labelled(mixed) == []
    (in_order,) = labelled(np.sort(mixed))
    assert "64 source images in a row show" in in_order
    assert "the stream's class mix, shuffled" in in_order
    assert labelled(mixed + 10), "of other classes"
    assert cautions(cells(methods=["source"])) == [], "no method looks at them"
    assert cautions(cells(methods=["source"], quantizers=["uniform"]))


def test_plan_warns_where_presets_meet_an_unknown_family(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ResNetMicro, "family", "my-net")
    found = estimate.describe("cautious", cells(models=["resnet-micro"], methods=["source", "zoa", "shift"]))
    (warning,) = found.data["warnings"]
    assert warning == (
        'model resnet-micro: there are no presets for its family "my-net", so defaults are used for zoa. If '
        "it is one of vit, resnet, vim, say so in its plugin; else set the parameters in the file."
    )
    assert f"Warning: {warning}" in found.text
    assert cautions(cells(models=["resnet-micro"], methods=["source", "shift"])) == []


@pytest.mark.usefixtures("by_class")
def test_validate_and_run_warn_too(tmp_path: Path) -> None:
    path = tmp_path / "cautious.yaml"
    path.write_text(
        "name: cautious\ndata: cifar10-mini\nmodels: [resnet-micro]\nmethods: [bn-adapt]\n"
        "stream: {corruptions: clean, order: sequential, rounds: 1}\n"
    )
    outcome = CliRunner().invoke(app, ["validate", str(path)])
    assert outcome.exit_code == 0, outcome.output
    assert "Warning: data cifar10-mini: batches of 64 hold" in outcome.output
    arguments = ["run", str(path), "--engine", "local", "--limit", "256", "--results", str(tmp_path)]
    outcome = CliRunner().invoke(app, arguments)
    assert "Warning: data cifar10-mini: " in outcome.output


def test_data_that_cannot_answer_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = cells()

    def broken(self: Cifar10Mini) -> np.ndarray:
        raise RuntimeError("no labels today")

    monkeypatch.setattr(Cifar10Mini, "test_labels", broken)
    assert cautions(found) == []


@pytest.mark.usefixtures("no_bytes")
def test_plan_says_whose_predictions_cost_a_step() -> None:
    """SAR takes several passes for a step, and has no prediction of its own; T3A's step is one pass."""
    stream = {"corruptions": "clean", "rounds": 1, "limit": 64, "adapt_every": 4}
    found = estimate.describe("rates", cells(methods=["sar", "t3a", "source"], stream=stream))
    assert found.data["predicted_by_steps"] == ["sar"]
    assert "Predicting without adapting costs as much as a step: sar.\n" in found.text
    every = estimate.describe("rates", cells(methods=["sar"], stream=stream | {"adapt_every": 1}))
    assert "Predicting without" not in every.text
