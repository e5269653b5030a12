"""Integer engines in a run: each is compared with the simulation when it is loaded."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tta_bench import config, grid
from tta_bench.errors import Unsupported
from tta_bench.execution.executor import Executor
from tta_bench.execution.messages import Delivery
from tta_bench.execution.model_cache import ModelCache
from tta_bench.planning.sharing import resolve
from tta_bench.storage.format import DESCRIPTIONS
from tta_bench_quantizers._engines import install, integer_layers

pytestmark = pytest.mark.usefixtures("no_bytes")
Write = Callable[..., Path]


def deliveries(write: Write, **quantizer: Any) -> list[Delivery]:
    chosen = {"use": "uniform", "bits": "W8A8", "engine": "torch-int8", **quantizer}
    path = write(quantizers=[chosen], methods=["source"], models=["vit-micro"])
    cells = grid.expand(config.load(path), str(path))
    return list(Executor().run([resolve(cell) for cell in cells]))


def test_agreement_is_in_the_description(write_yaml: Write) -> None:
    found = deliveries(write_yaml)
    facts = next(d.description for d in found if d.description)["engine"]
    assert facts["name"] == "torch-int8"
    assert facts["same_top1"] >= 0.95 * facts["images"] > 0
    assert 0 <= facts["largest_difference"] < 0.5
    assert facts["integer_sites"] == facts["expected_sites"] == 26
    assert "version" not in facts  # that of PyTorch is in the environment
    assert {r["status"] for d in found for r in d.records} == {"ok"}


def test_a_wrong_engine_fails_with_the_figures(write_yaml: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = integer_layers.unsigned_codes

    def wrong(*arguments: Any) -> tuple[torch.Tensor, bool]:
        codes, has_nan = exact(*arguments)
        return codes.bitwise_xor(96), has_nan

    monkeypatch.setattr(integer_layers, "unsigned_codes", wrong)
    (record,) = [r for d in deliveries(write_yaml) for r in d.records]
    assert record["status"] == "failed"
    assert "of 32 calibration images" in record["reason"]
    assert "At least 95% must agree" in record["reason"]


def test_the_version_of_the_engine_is_in_the_description(write_yaml: Write) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    found = deliveries(write_yaml, engine="onnxruntime")
    description = next(d.description for d in found if d.description)
    assert description["engine"]["version"] == onnxruntime.__version__
    DESCRIPTIONS.validate_python([{"key": "any"} | description])


def test_a_layer_that_torch_leaves_in_float_fails_the_cell(
    write_yaml: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It agrees with the simulation even better, so only the count of sites shows it."""
    in_integers = install._in_integers
    monkeypatch.setattr(
        install,
        "_in_integers",
        lambda layer, *rest: (
            None if layer.bias is None or len(layer.codes) == 192 else in_integers(layer, *rest)
        ),
    )
    (record,) = [r for d in deliveries(write_yaml) for r in d.records]
    assert record["status"] == "failed"
    assert "20 of 26 sites in integers; in float are blocks.0.attn.qkv" in record["reason"]
    assert "and 3 more" in record["reason"]


def test_a_graph_that_stays_in_float_fails_the_cell(
    write_yaml: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    from tta_bench_quantizers._engines.onnx_graphs import sessions

    options = sessions._options

    def without_fusions() -> Any:
        found = options()
        found.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        return found

    monkeypatch.setattr(sessions, "_options", without_fusions)
    (record,) = [r for d in deliveries(write_yaml, engine="onnxruntime") for r in d.records]
    assert record["status"] == "failed"
    assert "0 of 26 sites in integers" in record["reason"]


def test_cells_that_share_a_network_have_the_memory_that_it_added(write_yaml: Write) -> None:
    """Not that of the process, which holds images and other networks, too."""
    path = write_yaml(quantizers=[{"use": "uniform"}], methods=["source", "t3a"], models=["vit-micro"])
    executor, added = Executor(), []
    for cell in grid.expand(config.load(path), str(path)):
        found = next(d.description for d in executor.run([resolve(cell)]) if d.description)
        added.append(found["model_resident_bytes"])
    assert len(set(added)) == 1
    if sys.platform == "linux":
        assert 0 < added[0] < 50 * 2**20


def test_other_bits_are_unsupported_with_the_reason(write_yaml: Write) -> None:
    (record,) = [r for d in deliveries(write_yaml, bits="W4A4") for r in d.records]
    assert record["status"] == "unsupported"
    assert "W4A4" in record["reason"]


def test_a_method_that_the_engine_cannot_bear_is_unsupported_and_not_failed(write_yaml: Write) -> None:
    pytest.importorskip("onnxruntime")
    path = write_yaml(
        quantizers=[{"use": "uniform", "engine": "onnxruntime"}], methods=["tbr"], models=["resnet-micro"]
    )
    cells = grid.expand(config.load(path), str(path))
    (record,) = [r for d in Executor().run([resolve(cell) for cell in cells]) for r in d.records]
    assert record["status"] == "unsupported"
    assert "replaces norm layers" in record["reason"]


def test_engines_compute_on_the_cpu_only(write_yaml: Write) -> None:
    path = write_yaml(quantizers=[{"use": "uniform", "engine": "torch-int8"}], methods=["source"])
    (cell,) = grid.expand(config.load(path), str(path))
    with pytest.raises(Unsupported, match="CPU only, and the device is cuda"):
        ModelCache(torch.device("cuda")).model(cell)
