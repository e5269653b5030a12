"""`tta-bench export`: files that give the numbers of the engine, and errors that say what to do."""

from __future__ import annotations

import json
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from torch import nn

from tests.helpers.command import tta_bench
from tta_bench.api import Model
from tta_bench.data.cifar10.mini import Cifar10Mini
from tta_bench.errors import Unsupported
from tta_bench.models.micro import ResNetMicro, VitMicro
from tta_bench.models.resnet import ResNetModel
from tta_bench.models.vit import VitModel
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


SMALL_VIT = dict(img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2)
NOT_EXPORTED = [
    ("vit_tiny_patch16_224", SMALL_VIT | {"pre_norm": True}, "the norm before the blocks"),
    ("vit_tiny_patch16_224", SMALL_VIT | {"global_pool": "avg"}, "the pooling of tokens"),
    ("vit_tiny_patch16_224", SMALL_VIT | {"fc_norm": True}, "the pooling of tokens"),
    ("vit_tiny_patch16_224", SMALL_VIT | {"pos_embed": "none"}, "tokens without learned positions"),
    ("resnet18", {"stem_type": "deep"}, "the stem of several layers"),
    ("resnet18", {"replace_stem_pool": True}, "the pooling behind the first convolution"),
    ("resnet18", {"global_pool": "max"}, "the pooling of features"),
    ("resnet18", {"act_layer": nn.SiLU}, "of block layer1.0"),
]


def small(name: str, params: dict[str, Any]) -> Model:
    """A network of timm without weights."""
    net = timm.create_model(name, num_classes=10, **params).eval().requires_grad_(False)
    adapter: Any = VitModel if name.startswith("vit") else ResNetModel
    return adapter(net, name=name, num_classes=10, input_size=32, mean=[0.5] * 3, std=[0.5] * 3)


@with_onnx
@pytest.mark.parametrize(("name", "params", "part"), NOT_EXPORTED)
def test_networks_of_which_files_would_lack_a_part_are_refused(
    name: str, params: dict[str, Any], part: str
) -> None:
    reason = UniformQuantizer(engine="onnxruntime").unsupported_export(small(name, params))
    assert part in (reason or "")
    with pytest.raises(Unsupported, match=part):
        UniformQuantizer().network_files(small(name, params))


@with_onnx
@pytest.mark.parametrize(("name", "params"), [("vit_tiny_patch16_224", SMALL_VIT), ("resnet18", {})])
def test_plain_networks_of_timm_have_files(name: str, params: dict[str, Any]) -> None:
    scheme, images = UniformQuantizer(scale="minmax"), torch.rand(2, 3, 32, 32)
    assert scheme.unsupported_export(small(name, params)) is None
    assert "head.onnx" in scheme.network_files(scheme.quantize(small(name, params), images))


@with_onnx
@pytest.mark.parametrize("engine", ["torch-int8", "onnxruntime"])
def test_sites_of_a_deep_stem_are_expected_where_the_engine_computes_them(engine: str) -> None:
    scheme, model = UniformQuantizer(scale="minmax", engine=engine), small("resnet18", {"stem_type": "deep"})
    expected = scheme.expected_integer_sites(model)
    assert ("conv1.3" in expected) == (engine == "torch-int8")
    assert set(scheme.integer_sites(scheme.quantize(model, torch.rand(2, 3, 32, 32)))) == set(expected)


@with_onnx
def test_the_command_refuses_before_it_calibrates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = VitMicro.build

    def with_norm(self: VitMicro) -> Model:
        model = build(self)
        model.net.norm_pre = nn.LayerNorm(64)
        return model

    monkeypatch.setattr(VitMicro, "build", with_norm)
    monkeypatch.setattr(UniformQuantizer, "calibrate", lambda *_: pytest.fail("it calibrates"))
    outcome = tta_bench("export", "--model", "vit-micro", "--output", tmp_path / "network")
    assert outcome.returncode == 2
    assert "an export of vit-micro would have no graph of the norm before the blocks" in outcome.stderr
    assert not (tmp_path / "network").exists()


@with_onnx
def test_mqbench_has_an_engine_but_no_files(tmp_path: Path) -> None:
    outcome = tta_bench("export", "--model", "resnet-micro", "--quantizer", "mqbench", "--output", tmp_path)
    assert outcome.returncode == 2
    assert "MqBench has no form as ONNX files" in outcome.stderr


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
