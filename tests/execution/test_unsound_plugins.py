"""Plugins that declare what cannot be: told by name and reason, without a traceback."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.misbehaving import install
from tta_bench import config, grid, testing
from tta_bench.cli import listing
from tta_bench.errors import UserError
from tta_bench.execution.executor import Executor
from tta_bench.planning import tasks
from tta_bench.planning.sharing import resolve
from tta_bench.plugins import registry

POINTS = """[tta_bench.methods]
bad-cost = misbehaving.bad_cost:BadCost
unsound = misbehaving.unsound:Unsound

[tta_bench.data]
no-source = misbehaving.unsound:NoSource
"""
Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(install(tmp_path / "installed", POINTS)))
    for name in [name for name in sys.modules if name.split(".")[0] == "misbehaving"]:
        monkeypatch.delitem(sys.modules, name)


def test_a_cost_in_words_keeps_a_method_from_loading() -> None:
    expected = (
        'method "bad-cost" (misbehaving 1.0) cannot be imported: UserError: BadCost: `cost` is not read. '
        "Write the passes of a batch as two whole numbers, e.g. forwards = 2 and backwards = 1; if they "
        "depend on parameters, define passes()."
    )
    with pytest.raises(registry.UnknownPlugin) as found:
        registry.load("methods", "bad-cost")
    assert str(found.value).startswith(expected)
    rows = {row["name"]: row["what"] for row in listing.describe("methods", long=True).data["methods"]}
    assert rows["bad-cost"].startswith("BROKEN: method")


def test_a_plan_tells_a_cost_that_it_cannot_read(write_yaml: Write) -> None:
    cells = grid.expand(config.load(write_yaml(models=["vit-micro"], methods=["unsound"])))
    with pytest.raises(UserError, match=r"Unsound: passes\(\) gives \('K', 0\)"):
        tasks.passes(cells)


def test_presets_out_of_range_name_the_method_and_the_value(write_yaml: Write) -> None:
    benchmark = config.load(write_yaml(methods=["unsound"]))
    expected = (
        'method "unsound" on resnet-micro FP32, with presets: lr: -1 does not fit: it must be greater than 0.'
    )
    with pytest.raises(UserError, match=expected):
        grid.expand(benchmark)


def test_the_contract_suite_finds_them() -> None:
    with pytest.raises(testing.ContractBroken) as found:
        testing.check("methods", "unsound", lr=1)
    told = str(found.value)
    assert "passes() gives ('K', 0), which is not the number of forward" in told
    assert "resnet FP32: presets.lr: -1 does not fit: it must be greater than 0" in told
    assert "skipped without a reason: call self.skip(reason)" in told


@pytest.mark.usefixtures("no_bytes")
def test_data_without_clean_images_is_a_reason(write_yaml: Write) -> None:
    path = write_yaml(
        data="no-source",
        models=["vit-micro"],
        quantizers=["fp32", "uniform"],
        methods=["source", "shift"],
        stream={"corruptions": ["fog"], "rounds": 1, "batch_size": 8, "limit": 8},
    )
    executor = Executor()
    found = {
        (cell.quantizer.use, cell.method.use): record
        for cell in grid.expand(config.load(path))
        for delivery in executor.run([resolve(cell)])
        for record in delivery.records
    }
    assert found["fp32", "source"]["status"] == "ok"
    unsupported = {key: r["reason"] for key, r in found.items() if r["status"] == "unsupported"}
    assert unsupported == {
        ("fp32", "shift"): "needs clean images, and the data has none",
        ("uniform", "source"): "calibration needs clean images, and the data has none",
        ("uniform", "shift"): "calibration needs clean images, and the data has none",
    }
