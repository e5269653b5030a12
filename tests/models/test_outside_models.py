"""Networks from outside: quantised inputs, schemes that look at modules, weights used as trained."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from typer.testing import CliRunner

import tta_bench
from tta_bench.api import Domain, Model, Target, TimmModel
from tta_bench.checks.models import _hits
from tta_bench.cli import app
from tta_bench.data.cifar10.mini import Cifar10Mini
from tta_bench.footprint.skeleton import skeleton
from tta_bench.models.imagenet import ResNet50
from tta_bench.models.micro import ResNetMicro, build_resnet
from tta_bench.models.timm_tags import Timm
from tta_bench.testing import model_checks
from tta_bench.testing.bench import Bench
from tta_bench.testing.quantizer_checks import quantizers_are_reached
from tta_bench_methods.zoa import Zoa
from tta_bench_quantizers._core.activations import UniformActivation
from tta_bench_quantizers.mqbench.quantizer import MqBench
from tta_bench_quantizers.ptq4vm.quantizer import Ptq4Vm
from tta_bench_quantizers.uniform import UniformQuantizer

PACKAGE = Path(tta_bench.__file__).parent


def _template() -> Any:
    """The template of a model, which is a module itself."""
    spec = importlib.util.spec_from_file_location("model_template", PACKAGE / "scaffold/templates/model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


template = _template()
IMAGES = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))


class Elsewhere(template.PluginClass):  # type: ignore[misc]
    """The template's network, seen by another adapter."""

    adapter: Any
    net: Any = template.Net

    def skeleton(self) -> Model:
        half = (0.5, 0.5, 0.5)
        facts: dict[str, Any] = dict(num_classes=10, input_size=32, mean=half, std=half)
        return self.adapter(self.net(), name="elsewhere", **facts).eval()


# -- the input, and what is reached ------------------------------------------------------------------


@pytest.mark.parametrize("scheme", [MqBench, UniformQuantizer])
def test_the_input_of_a_network_from_the_template_is_quantised(scheme: type) -> None:
    model = template.PluginClass().build()
    scheme(bits="W8A8").quantize(model, IMAGES)
    assert isinstance(model.input_quantizer, UniformActivation)
    x = torch.rand(2, 3, 32, 32)
    assert len(x.unique()) > 256
    seen: list[Tensor] = []
    model.net.conv1.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model(x)
    assert 16 < len(seen[0].unique()) <= 256


class Past(template.Adapter):  # type: ignore[misc]
    """Scales images itself."""

    def stem(self, x: Tensor, prompt: Tensor | None = None) -> Tensor:
        return self.net.conv1((x - self.mean) / self.std)


class PastWithPrompt(template.Adapter):  # type: ignore[misc]
    """Scales images itself where there is a prompt."""

    def stem(self, x: Tensor, prompt: Tensor | None = None) -> Tensor:
        if prompt is None:
            return super().stem(x)
        return self.net.conv1((x - self.mean) / self.std + F.conv2d(x, prompt, padding=3))


@pytest.mark.parametrize("adapter", [Past, PastWithPrompt])
def test_check_finds_an_input_that_goes_past_the_quantizer(adapter: type) -> None:
    source = Elsewhere()
    source.adapter = adapter
    with pytest.raises(AssertionError, match=r"past the input quantizer|does not read the images"):
        model_checks.model_input_can_be_quantised(source)
    source.adapter = template.Adapter
    model_checks.model_input_can_be_quantised(source)


class Functional(template.Block):  # type: ignore[misc]
    """Owns activations that it does not call."""

    def forward(self, x: Tensor) -> Tensor:
        branch = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(x + branch)


class FunctionalNet(template.Net):  # type: ignore[misc]
    """Blocks of that kind."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Functional() for _ in range(3))


def test_check_finds_quantizers_that_no_pass_reaches() -> None:
    source = Elsewhere()
    source.adapter = Past
    with pytest.raises(AssertionError, match="not reached in a forward pass: input_quantizer"):
        model_checks.model_runs_quantised(source)
    source.adapter, source.net = template.Adapter, FunctionalNet
    with pytest.raises(AssertionError, match=r"not reached in a forward pass: net.blocks.0.act1"):
        model_checks.model_runs_quantised(source)


class Careless(UniformQuantizer):
    """Places a quantizer where nothing passes."""

    def apply(self, model: Model, calibration: Any) -> None:
        super().apply(model, calibration)
        model.net.forgotten = UniformActivation(torch.tensor(0.1), None, 8)


def test_check_counts_the_calls_of_every_placed_quantizer() -> None:
    model = ResNetMicro().build()
    quantizers_are_reached(Bench(UniformQuantizer, model))
    with pytest.raises(AssertionError, match=r"not reached in a forward pass: net\.forgotten"):
        quantizers_are_reached(Bench(Careless, model))


# -- families ----------------------------------------------------------------------------------------


class Stranger(template.Adapter):  # type: ignore[misc]
    """The same network under a name of its own."""

    family = "stranger"


class Otherwise(nn.Module):
    """The template's network before its modules had timm's names."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32)
        self.blocks = nn.ModuleList(template.Block() for _ in range(3))
        self.fc = nn.Linear(32, 10)


def test_mqbench_goes_by_modules_and_not_by_the_family() -> None:
    source = Elsewhere()
    source.adapter = Stranger
    assert MqBench().unsupported(source.skeleton()) is None
    source.adapter, source.net = template.Adapter, Otherwise
    reason = MqBench().unsupported(source.skeleton())
    assert reason == (
        "quantises ResNets with modules called as timm's ResNets have them, and elsewhere has no "
        "Conv2d net.conv1"
    )


def test_ptq4vm_goes_by_modules_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template.Adapter, "family", "vim")
    reason = Ptq4Vm().unsupported(template.PluginClass().skeleton())
    assert reason is not None
    assert "Vision Mamba" in reason


def test_the_template_takes_the_presets_of_its_family() -> None:
    target = template.PluginClass().build().target()
    assert Zoa.presets(target) == Zoa.presets(Target("plugin-name", "resnet", "FP32"))
    assert Zoa.presets(target)["lam"] == 1.0


# -- weights as trained ------------------------------------------------------------------------------


def test_own_weights_say_how_they_were_trained() -> None:
    mean, std = [0.4, 0.5, 0.6], [0.1, 0.2, 0.3]
    for source in (
        ResNet50(weights="random", mean=mean, std=std, eps=1e-3, stride="v1"),
        Timm("resnet50.tv_in1k", weights="random", mean=mean, std=std, eps=1e-3, stride="v1"),
    ):
        facts = source._facts()
        assert (facts["mean"], facts["std"]) == (mean, std)
        net: Any = skeleton(source).net
        assert {m.eps for m in net.modules() if isinstance(m, nn.BatchNorm2d)} == {1e-3}
        for stage, stride in ((net.layer1, 1), (net.layer2, 2), (net.layer3, 2), (net.layer4, 2)):
            assert (stage[0].conv1.stride, stage[0].conv2.stride) == ((stride, stride), (1, 1))
            assert stage[1].conv1.stride == (1, 1)
    plain: Any = skeleton(ResNet50(weights="random")).net
    assert (plain.layer2[0].conv1.stride, plain.layer2[0].conv2.stride) == ((1, 1), (2, 2))
    assert plain.bn1.eps == 1e-5


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"mean": [0.5]}, "three numbers, for red, green and blue"),
        ({"std": [0.5, 0.5, 0]}, "greater than 0"),
        ({"eps": 0}, "greater than 0"),
        ({"stride": "v2"}, "one of v1.5, v1"),
    ],
)
def test_impossible_facts_are_refused(wrong: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        ResNet50(**wrong)


def test_only_bottlenecks_have_v1_strides() -> None:
    with pytest.raises(ValueError, match="has no bottleneck blocks"):
        Timm("resnet18.tv_in1k", stride="v1")


class MicroByPath(TimmModel):
    """resnet-micro from a file, with either stride."""

    family, name, num_classes, input_size = "resnet", "by-path", 10, 32
    scale = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}  # noqa: RUF012

    def __init__(self, weights: Path, stride: Any = "v1.5") -> None:
        self.weights, self.stride = str(weights), stride

    def network(self) -> nn.Module:
        return build_resnet()


def test_other_strides_fit_and_cost_accuracy() -> None:
    path, data = PACKAGE / "assets" / "resnet-micro.safetensors", Cifar10Mini()
    labels = data.test_labels()[:200]
    right, wrong = (_hits(MicroByPath(path, stride).build(), data, labels, 100) for stride in ("v1.5", "v1"))
    assert right > 160
    assert wrong < right - 10


def test_a_checkpoint_without_num_batches_tracked_will_do(tmp_path: Path) -> None:
    state = load_file(PACKAGE / "assets" / "resnet-micro.safetensors")
    older = {key: tensor for key, tensor in state.items() if not key.endswith("num_batches_tracked")}
    assert len(older) < len(state)
    save_file(older, tmp_path / "older.safetensors")
    source = MicroByPath(tmp_path / "older.safetensors")
    assert source.problems() == []
    assert torch.equal(source.build()(IMAGES), ResNetMicro().build()(IMAGES))
    save_file({k: t for k, t in older.items() if k != "bn1.weight"}, tmp_path / "broken.safetensors")
    (problem,) = MicroByPath(tmp_path / "broken.safetensors").problems()
    assert "missing: bn1.weight" in problem


def test_weights_that_no_hub_has_are_told_with_a_remedy() -> None:
    source = MicroByPath(Path("auto"))
    (problem,) = source.problems()
    assert problem == "by-path has no weights on a hub. Give `weights: PATH` or `weights: random`."
    assert source.fingerprint() == ""


# -- tta-bench models check --------------------------------------------------------------------------


def check(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["models", "check", *arguments])


def test_the_command_compares_with_the_expected_accuracy() -> None:
    fine = check("resnet-micro", "--limit", "100", "--expect", "84")
    assert fine.exit_code == 0, fine.output
    assert "of 100 clean images correct" in fine.output
    assert "expected 84.0 %" in fine.output
    bad = check("resnet-micro", "--limit", "100", "--expect", "99.5")
    assert bad.exit_code == 1
    assert "lower than chance can explain" in bad.output
    assert "stride" in bad.output


def test_the_command_counts_as_one_would() -> None:
    found = json.loads(check("resnet-micro", "--limit", "50", "--json").stdout)
    data, index = Cifar10Mini(), np.arange(50)
    logits = ResNetMicro().build()(data.test_images(Domain("clean", 0), index))
    assert found["right"] == int((logits.argmax(1).numpy() == data.test_labels()[:50]).sum())
    assert found["as_expected"] is None


def test_the_command_names_what_does_not_fit() -> None:
    outcome = check("timm:resnet18.tv_in1k", "--set", "weights=random")
    assert outcome.exit_code != 0
    assert "has 1000 classes, and cifar10-mini has 10" in str(outcome.exception)
