"""Networks for CIFAR with RobustBench's checkpoints: keys, what they compute, files that do not fit."""

from __future__ import annotations

import copy
import hashlib
import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tta_bench.api import Model, Source
from tta_bench.errors import UserError
from tta_bench.footprint import account
from tta_bench.models import weights
from tta_bench.models.cifar.classifiers import CifarModel, ResNeXt29, RobustBenchFile, Wrn402, Wrn2810
from tta_bench.models.cifar.wide_resnet import WideResNet, WideResNetModel
from tta_bench.plugins import registry
from tta_bench_methods.source import NoAdaptation
from tta_bench_quantizers.fp32 import Fp32
from tta_bench_quantizers.mqbench.quantizer import MqBench
from tta_bench_quantizers.uniform import UniformQuantizer

Shapes = dict[str, tuple[int, ...]]
IMAGES = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
NORM = ("weight", "bias", "running_mean", "running_var")


# Published keys -----------------------------------------------------------------------------------


def norm_shapes(name: str, width: int) -> Shapes:
    return {f"{name}.{part}": (width,) for part in NORM} | {f"{name}.num_batches_tracked": ()}


def wrn_shapes(depth: int, widening: int, classes: int) -> Shapes:
    """The keys of RobustBench's WideResNet."""
    shapes: Shapes = {"conv1.weight": (16, 3, 3, 3)}
    before = 16
    for stage, width in enumerate((16 * widening, 32 * widening, 64 * widening), 1):
        for index in range((depth - 4) // 6):
            block = f"block{stage}.layer.{index}"
            shapes |= norm_shapes(f"{block}.bn1", before) | norm_shapes(f"{block}.bn2", width)
            shapes |= {f"{block}.conv1.weight": (width, before, 3, 3)}
            shapes |= {f"{block}.conv2.weight": (width, width, 3, 3)}
            if before != width:
                shapes |= {f"{block}.convShortcut.weight": (width, before, 1, 1)}
            before = width
    return shapes | norm_shapes("bn1", before) | {"fc.weight": (classes, before), "fc.bias": (classes,)}


def resnext_shapes(classes: int) -> Shapes:
    """The keys of RobustBench's CifarResNeXt of depth 29 with 4 groups of base width 32."""
    shapes: Shapes = {"conv_1_3x3.weight": (64, 3, 3, 3)} | norm_shapes("bn_1", 64)
    before = 64
    for stage, (inner, width) in enumerate(((128, 256), (256, 512), (512, 1024)), 1):
        for index in range(3):
            block = f"stage_{stage}.{index}"
            shapes |= {f"{block}.conv_reduce.weight": (inner, before, 1, 1)}
            shapes |= {f"{block}.conv_conv.weight": (inner, inner // 4, 3, 3)}
            shapes |= {f"{block}.conv_expand.weight": (width, inner, 1, 1)}
            shapes |= norm_shapes(f"{block}.bn_reduce", inner) | norm_shapes(f"{block}.bn", inner)
            shapes |= norm_shapes(f"{block}.bn_expand", width)
            if index == 0:
                shapes |= {f"{block}.downsample.0.weight": (width, before, 1, 1)}
                shapes |= norm_shapes(f"{block}.downsample.1", width)
            before = width
    return shapes | {"classifier.weight": (classes, 1024), "classifier.bias": (classes,)}


PUBLISHED: list[tuple[CifarModel, Shapes, int]] = [
    (Wrn2810(), wrn_shapes(28, 10, 10), 36_479_194),
    (Wrn402(), wrn_shapes(40, 2, 10), 2_243_546),
    (Wrn402(classes=100), wrn_shapes(40, 2, 100), 2_255_156),
    (ResNeXt29(), resnext_shapes(100), 6_900_132),
]


@pytest.mark.parametrize(("source", "shapes", "parameters"), PUBLISHED, ids=lambda v: getattr(v, "name", ""))
def test_keys_and_shapes_are_those_of_the_published_files(
    source: CifarModel, shapes: Shapes, parameters: int
) -> None:
    with torch.device("meta"):
        net = source.skeleton().net
    assert {key: tuple(tensor.shape) for key, tensor in net.state_dict().items()} == shapes
    assert sum(p.numel() for p in net.parameters()) == parameters


def test_only_the_standard_weights_are_not_normalised() -> None:
    x = torch.tensor([0.25]).expand(1, 3, 1, 1)
    for source, value in ((Wrn2810, 0.25), (Wrn402, -0.5), (ResNeXt29, -0.5)):
        with torch.device("meta"):
            facts = source()._facts()
        mean, std = (torch.tensor(facts[name]).view(1, 3, 1, 1) for name in ("mean", "std"))
        assert torch.allclose((x - mean) / std, torch.tensor(value))
    assert Wrn402(mean=[0.1, 0.2, 0.3])._facts()["mean"] == [0.1, 0.2, 0.3]


# What they compute --------------------------------------------------------------------------------


def shaken(model: Model) -> Model:
    """The model with norms that change something."""
    rng = torch.Generator().manual_seed(1)
    for norm in model.batch_norms():
        for tensor in (norm.weight.data, norm.bias.data, norm.running_mean, norm.running_var):
            assert tensor is not None
            tensor.copy_(torch.rand(tensor.shape, generator=rng) + 0.5)
    return model.eval().requires_grad_(False)


def normed(state: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    weight, bias, mean, variance = (state[f"{name}.{part}"] for part in NORM)
    return F.batch_norm(x, mean, variance, weight, bias)


def wrn_logits(state: dict[str, Tensor], depth: int, x: Tensor) -> Tensor:
    """WideResNet by its definition, from the tensors alone."""
    x = F.conv2d(x, state["conv1.weight"], padding=1)
    for stage in (1, 2, 3):
        for index in range((depth - 4) // 6):
            block, stride = f"block{stage}.layer.{index}", 2 if stage > 1 and index == 0 else 1
            active = normed(state, f"{block}.bn1", x).relu()
            inner = F.conv2d(active, state[f"{block}.conv1.weight"], stride=stride, padding=1)
            inner = normed(state, f"{block}.bn2", inner).relu()
            inner = F.conv2d(inner, state[f"{block}.conv2.weight"], padding=1)
            shortcut = state.get(f"{block}.convShortcut.weight")
            x = inner + (x if shortcut is None else F.conv2d(active, shortcut, stride=stride))
    pooled = F.adaptive_avg_pool2d(normed(state, "bn1", x).relu(), 1).flatten(1)
    return F.linear(pooled, state["fc.weight"], state["fc.bias"])


def resnext_logits(state: dict[str, Tensor], x: Tensor) -> Tensor:
    """ResNeXt-29 by its definition, from the tensors alone."""
    x = normed(state, "bn_1", F.conv2d(x, state["conv_1_3x3.weight"], padding=1)).relu()
    for stage in (1, 2, 3):
        for index in range(3):
            block, stride = f"stage_{stage}.{index}", 2 if stage > 1 and index == 0 else 1
            inner = normed(
                state, f"{block}.bn_reduce", F.conv2d(x, state[f"{block}.conv_reduce.weight"])
            ).relu()
            inner = F.conv2d(inner, state[f"{block}.conv_conv.weight"], stride=stride, padding=1, groups=4)
            inner = F.conv2d(normed(state, f"{block}.bn", inner).relu(), state[f"{block}.conv_expand.weight"])
            if index == 0:
                x = F.conv2d(x, state[f"{block}.downsample.0.weight"], stride=stride)
                x = normed(state, f"{block}.downsample.1", x)
            x = (x + normed(state, f"{block}.bn_expand", inner)).relu()
    return F.linear(x.mean((2, 3)), state["classifier.weight"], state["classifier.bias"])


def test_networks_compute_what_their_definitions_say() -> None:
    wide, grouped = shaken(Wrn402().skeleton()), shaken(ResNeXt29().skeleton())
    x = IMAGES[:2]
    scaled = (x - 0.5) / 0.5
    assert torch.allclose(wide(x), wrn_logits(wide.net.state_dict(), 40, scaled), rtol=1e-3, atol=1e-4)
    assert torch.allclose(grouped(x), resnext_logits(grouped.net.state_dict(), scaled), rtol=1e-3, atol=1e-4)


@pytest.fixture(scope="module")
def small() -> Model:
    """WRN-16-1: two blocks in each stage."""
    facts: dict[str, Any] = dict(mean=(0.5,) * 3, std=(0.5,) * 3)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = WideResNet(16, 1, 10)
    return shaken(WideResNetModel(net, name="wrn-16-1", num_classes=10, input_size=32, **facts))


def test_the_last_layer_feature_is_z(small: Model) -> None:
    """Methods shift z by the difference of the last layer features of source and stream."""
    for model in (small, shaken(ResNeXt29().skeleton())):
        probes, z = model.continue_from(model.enter(model.stem(IMAGES)))
        assert len(probes) == 3
        assert torch.equal(probes[-1], z)


def test_norms_are_counted_to_the_right_blocks(small: Model) -> None:
    norms = {norm.name: norm.block for norm in small.norms()}
    assert (norms["block1.layer.0.bn1"], norms["block3.layer.1.bn2"], norms["bn1"]) == (0, 5, 6)
    assert not any(small.closes_branch(norm) for norm in small.norms())
    with torch.device("meta"):
        grouped = ResNeXt29().skeleton()
    closing = {n.name.split(".", 2)[2] for n in grouped.norms() if n.block >= 0 and grouped.closes_branch(n)}
    assert closing == {"bn_expand", "downsample.1"}


SETTINGS: dict[str, dict[str, Any]] = {"foa": {"k": 4}, "rotta": {"capacity": 4}, "iabn": {"capacity": 4}}


@pytest.mark.parametrize(
    "name", ["zoa", "foa", "bn-adapt", "pea", "shift", "t3a", "iabn", "tent", "roid", "rotta"]
)
def test_methods_run_on_a_pre_activated_network(small: Model, name: str) -> None:
    cls = registry.load("methods", name)
    method, model = cls(**cls.presets(small.target()) | SETTINGS.get(name, {})), copy.deepcopy(small)
    assert method.unsupported(model) is None
    with torch.no_grad():
        method.setup(model, Source(IMAGES, 4))
        for _ in range(2):
            logits = method.step(model.features(IMAGES) if method.consumes == "features" else IMAGES)
    assert logits.shape == (4, 10)
    assert logits.isfinite().all()


def test_quantizers_take_them_or_say_why_not(small: Model) -> None:
    quantised = UniformQuantizer(bits="W8A8").quantize(copy.deepcopy(small), IMAGES)
    assert torch.allclose(quantised(IMAGES), small(IMAGES), rtol=0.1, atol=0.2)
    assert not torch.equal(quantised(IMAGES), small(IMAGES))
    with torch.device("meta"):
        models = {source.name: source.skeleton() for source in (Wrn402(), ResNeXt29())}
    for name, missing in (("wrn-40-2", "Module net.act1"), ("resnext-29", "Conv2d net.conv1")):
        assert str(MqBench().unsupported(models[name])).endswith(f"{name} has no {missing}")
        reason = UniformQuantizer(engine="onnxruntime").unsupported(models[name])
        assert reason == f"engine onnxruntime has no graph of the blocks of {name}"


def test_bytes_are_counted_without_weights() -> None:
    found = account.account("wrn-28-10", Fp32(), NoAdaptation(), 2)
    assert found.packed_bytes == pytest.approx(36_479_194 * 4, rel=0.01)
    assert found.memory_bytes > found.packed_bytes
    narrow = account.account("wrn-28-10", UniformQuantizer(bits="W8A8"), NoAdaptation(), 2)
    assert 0.25 < narrow.packed_bytes / found.packed_bytes < 0.27


# Files --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def state() -> dict[str, Tensor]:
    return Wrn402(weights="random").build().net.state_dict()


def test_wrapped_checkpoints_are_unwrapped(state: dict[str, Tensor], tmp_path: Path) -> None:
    inner = {f"module.{key}": tensor for key, tensor in state.items()}
    extra = {"module.sub_block1.layer.0.bn1.weight": torch.ones(16), "module.mu": torch.zeros(1, 3, 1, 1)}
    path = tmp_path / "augmix.pth.tar"
    torch.save({"epoch": 199, "model": "wrn", "state_dict": inner | extra, "best_acc": 0.95}, path)
    source = Wrn402(weights=str(path))
    assert source.problems() == []
    model = source.build()
    assert all(torch.equal(tensor, state[key]) for key, tensor in model.net.state_dict().items())
    assert model.weights_sha256 == source.fingerprint() == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("module", ["numpy.core.multiarray", "numpy._core.multiarray"])
@pytest.mark.parametrize("number", [np.float64(94.9), np.float32(94.9), np.int64(95)], ids=lambda n: n.dtype)
def test_numpy_scalars_beside_the_tensors_are_read(
    module: str, number: np.generic, state: dict[str, Tensor], tmp_path: Path
) -> None:
    """As in checkpoints of AugMix, written with NumPy 1."""
    path, written = tmp_path / "augmix.pt", io.BytesIO()
    torch.save({"best_acc": number, "state_dict": state}, written)
    path.write_bytes(renamed(written.getvalue(), number.__reduce__()[0].__module__, module))
    assert Wrn402(weights=str(path)).problems() == []
    read = weights.read(path)
    assert all(torch.equal(read[key], tensor) for key, tensor in state.items())


def renamed(archive: bytes, module: str, other: str) -> bytes:
    """A file of torch.save with another module in its pickle."""
    written = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(written, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            assert not name.endswith(".pkl") or module.encode() in content
            new.writestr(name, content.replace(module.encode(), other.encode()))
    return written.getvalue()


class Command:
    """What a pickle can call when it is read without `weights_only`."""

    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("code of the file was run",)


@pytest.mark.parametrize("extra", [Command(), np.array([Command()]), np.array(["a"], "O")])
def test_other_objects_beside_the_tensors_are_refused(
    extra: object, state: dict[str, Tensor], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.pt"
    torch.save({"best_acc": extra, "state_dict": state}, path)
    (problem,) = Wrn402(weights=str(path)).problems()
    assert problem.startswith(f"{path}: cannot be read as tensors")
    assert "code of the file" not in capsys.readouterr().out


def test_files_that_do_not_fit_are_told_with_a_remedy(state: dict[str, Tensor], tmp_path: Path) -> None:
    path = tmp_path / "wrn.pt"
    torch.save(state, path)
    cases: list[tuple[CifarModel, list[str]]] = [
        (Wrn402(weights=str(path), classes=100), ["fc.weight [10, 128]", "10 classes: give `classes: 10`."]),
        (Wrn2810(weights=str(path)), ["unexpected: block1.layer.4", "Give a state dict of wrn-28-10."]),
        (ResNeXt29(weights=str(path)), ["unexpected: conv1.weight", "Give a state dict of resnext-29."]),
    ]
    for source, parts in cases:
        (problem,) = source.problems()
        assert problem.startswith(f"{path}: ")
        assert all(part in problem for part in parts), problem
        with pytest.raises(UserError, match=r"wrn\.pt"):
            source.build()
    (problem,) = Wrn402(weights=str(tmp_path / "nowhere.pt")).problems()
    assert "nowhere.pt is missing" in problem


def test_a_page_of_a_file_host_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "Standard.pt"
    path.write_text("<!DOCTYPE html><html><head><title>Virus scan warning</title>")
    (problem,) = Wrn2810(weights=str(path)).problems()
    assert problem == f"{path}: is a web page. Download the file that the page offers."


def test_auto_finds_a_file_with_the_known_hash(
    state: dict[str, Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTA_BENCH_DATA", str(tmp_path))
    path = tmp_path / "weights" / "cifar10" / "Known.pt"
    (missing,) = Wrn2810().problems()
    assert missing.startswith(
        "$TTA_BENCH_DATA/weights/cifar10/corruptions/Standard.pt is missing. Get this file"
    )
    assert Wrn2810().fingerprint() == ""
    path.parent.mkdir(parents=True)
    torch.save(state, path)
    known = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(Wrn402, "published", {10: RobustBenchFile("cifar10/Known.pt", known)})
    assert Wrn402().problems() == []
    assert Wrn402().build().weights_sha256 == Wrn402().fingerprint() == known
    monkeypatch.setattr(Wrn402, "published", {10: RobustBenchFile("cifar10/Known.pt", "0" * 64)})
    (problem,) = Wrn402().problems()
    assert problem.startswith(f"{path}: its SHA-256 begins with {known[:12]}, and that of the published file")
    assert "give `weights: PATH`" in problem
    assert Wrn402(weights=str(path)).problems() == []


def test_weights_without_a_known_hash_need_a_path() -> None:
    for source, file in (
        (Wrn402(), "cifar10/corruptions/Hendrycks2020AugMix_WRN.pt"),
        (Wrn402(classes=100), "cifar100/corruptions/Hendrycks2020AugMix_WRN.pt"),
        (ResNeXt29(), "cifar100/corruptions/Hendrycks2020AugMix_ResNeXt.pt"),
    ):
        (problem,) = source.problems()
        assert problem.startswith(f"no SHA-256 of RobustBench's {file} is known")
        assert "give `weights: PATH`" in problem
    (problem,) = Wrn2810(classes=100).problems()
    assert problem.startswith("wrn-28-10 has no published weights for 100 classes")


def test_other_numbers_of_classes_are_refused() -> None:
    with pytest.raises(ValueError, match="it must be one of 10, 100"):
        Wrn402(classes=7)  # type: ignore[arg-type]


def test_the_first_layer_is_the_one_that_reads_images() -> None:
    with torch.device("meta"):
        model = ResNeXt29().skeleton()
    assert model.net.conv1 is model.net.conv_1_3x3
    assert isinstance(model.classifier, nn.Linear)
