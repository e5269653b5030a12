"""`tta-bench export`: files that give the numbers of the engine, and errors that say what to do."""

from __future__ import annotations

import json
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.command import tta_bench
from tta_bench.data.cifar10.mini import Cifar10Mini
from tta_bench.models.micro import ResNetMicro, VitMicro
from tta_bench_quantizers.uniform import UniformQuantizer

NETWORKS = {"vit-micro": VitMicro, "resnet-micro": ResNetMicro}
with_onnx = pytest.mark.skipif(
    find_spec("onnxruntime") is None or find_spec("onnx") is None,
    reason="the extra tta-bench[onnx] is not installed",
)


def features_of(folder: Path, facts: dict[str, Any], images: np.ndarray) -> np.ndarray:
    """The last hidden state, by graphs and parameters of the files alone."""
    import onnxruntime

    parameters, x = np.load(folder / "parameters.npz"), images
    places = {"stem": "", "entry": ""} | {
        f"block_{i:02d}": f"{name}." for i, name in enumerate(facts["blocks"])
    }
    for name, signature in facts["files"].items():
        if name not in places:  # norms of layer features, and the head
            continue
        wanted = set(signature["inputs"]) - {"input", "batch_statistics"}
        feeds = {each: parameters[places[name] + each] for each in wanted}
        if "batch_statistics" in signature["inputs"]:
            feeds["batch_statistics"] = np.array(False)
        (x,) = onnxruntime.InferenceSession(folder / f"{name}.onnx").run(None, {"input": x, **feeds})
    return x


@with_onnx
@pytest.mark.parametrize("name", NETWORKS)
def test_the_files_give_the_hidden_state_of_the_engine(name: str, tmp_path: Path) -> None:
    outcome = tta_bench("export", "--model", name, "--output", tmp_path / "network", "--json")
    assert outcome.returncode == 0, outcome.stderr
    written = json.loads(outcome.stdout)
    assert {each["file"] for each in written["files"]} == {f.name for f in (tmp_path / "network").iterdir()}
    facts = json.loads((tmp_path / "network" / "network.json").read_text())
    clean = Cifar10Mini().source_images()
    quantizer, model = UniformQuantizer(engine="onnxruntime"), NETWORKS[name]().build()
    assert [norm["name"] for norm in facts["norms"]] == [norm.name for norm in model.norms()]
    quantizer.quantize(model, quantizer.calibration_set(clean))
    with torch.no_grad():
        hidden = model.enter(model.stem(clean[:16]))
        for block in model.blocks:
            hidden = block(hidden)
    found = features_of(tmp_path / "network", facts, clean[:16].numpy())
    if name == "vit-micro":
        assert np.array_equal(found, hidden.numpy())
    else:  # its first convolution is in float, and rounded differently
        gap = np.abs(found - hidden.permute(0, 2, 3, 1).numpy())
        assert np.median(gap) < 1e-3 * np.abs(found).max()


@with_onnx
def test_the_head_is_that_of_the_engine(tmp_path: Path) -> None:
    import onnxruntime

    clean = Cifar10Mini().source_images()
    quantizer = UniformQuantizer()
    model = VitMicro().build()
    calibration = quantizer.calibrate(deepcopy(model), quantizer.calibration_set(clean), lambda *_: None)
    files = quantizer.network_files(quantizer.install(model, calibration))
    engine = UniformQuantizer(engine="onnxruntime").install(VitMicro().build(), calibration)
    z = torch.randn(5, 64, generator=torch.Generator().manual_seed(0))
    (logits,) = onnxruntime.InferenceSession(files["head.onnx"]).run(None, {"input": z[:, None].numpy()})
    assert np.array_equal(logits[:, 0], engine.head(z).numpy())


@with_onnx
def test_a_folder_that_cannot_be_written_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outcome = tta_bench("export", "--model", "vit-micro", "--output", tmp_path / "file" / "network")
    assert outcome.returncode == 2
    assert "Choose another --output" in outcome.stderr


def test_a_scheme_without_engine_is_refused(tmp_path: Path) -> None:
    outcome = tta_bench("export", "--model", "vit-micro", "--quantizer", "fp32", "--output", tmp_path)
    assert outcome.returncode == 2
    assert "has no integer engine" in outcome.stderr
    outcome = tta_bench("export", "--model", "vit-micro", "--quantizer", "ptq4vit", "--output", tmp_path)
    assert outcome.returncode == 2
    assert "two ranges" in outcome.stderr
