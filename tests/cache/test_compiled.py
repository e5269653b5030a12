"""Compiled and eager quantisers give the same numbers in every layout; and all works without a compiler."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from tta_bench.api import Model, ModelSource, Quantizer, Source
from tta_bench.cache import native_code
from tta_bench.data.cifar10.mini import Cifar10Mini
from tta_bench.models.micro import ResNetMicro, VimMicro, VitMicro
from tta_bench_methods.zoa import Zoa
from tta_bench_quantizers._core import kernels
from tta_bench_quantizers._core.activations import ActivationQuantizer, UniformActivation
from tta_bench_quantizers._core.twin import GELU_DEPTH, TwinSoftmax
from tta_bench_quantizers.adalog.logarithmic import AdaLogActivation, find_thresholds
from tta_bench_quantizers.adalog.quantizer import AdaLog
from tta_bench_quantizers.mqbench.quantizer import MqBench
from tta_bench_quantizers.ptq4vit.quantizer import Ptq4Vit
from tta_bench_quantizers.ptq4vm.quantizer import Ptq4Vm
from tta_bench_quantizers.uniform import UniformQuantizer

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "transposed": lambda x: x.mT,
    "heads of one projection": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "every second row": lambda x: x[:, :, ::2],
    "every second number": lambda x: x[..., ::2],
}
ONE, HEADS = torch.tensor(0.043), torch.rand(1, 5, 1, 1) * 0.1 + 0.01
QUANTISERS: dict[str, ActivationQuantizer] = {
    "symmetric": UniformActivation(ONE, None, 8),
    "affine": UniformActivation(ONE, torch.tensor(3), 4),
    "symmetric by head": UniformActivation(HEADS, None, 6),
    "affine by head": UniformActivation(HEADS, torch.arange(5).view(1, 5, 1, 1), 4),
    "twin softmax": TwinSoftmax(torch.tensor(2.0**-4), 8, "paper"),
    "twin softmax, released": TwinSoftmax(torch.tensor(2.0**-3), 6, "released"),
    "logarithmic": AdaLogActivation(torch.tensor(1.0), torch.tensor(23), 4),
    "logarithmic, shifted": AdaLogActivation(torch.tensor(2.7), torch.tensor(90), 3, GELU_DEPTH),
    "logarithmic, many bits": AdaLogActivation(torch.tensor(1.0), torch.tensor(23), 8),
}
NETWORKS: dict[str, tuple[ModelSource, Quantizer]] = {
    "uniform": (VitMicro(), UniformQuantizer(bits="W8A8")),
    "ptq4vit": (VitMicro(), Ptq4Vit(bits="W8A8", candidates=5, rounds=1, rows=32)),
    "ptq4vit released": (VitMicro(), Ptq4Vit("W6A6", twin_mode="released", candidates=5, rounds=1, rows=32)),
    "adalog": (VitMicro(), AdaLog(bits="W4A4", rounds=1, rows=32)),
    "mqbench": (ResNetMicro(), MqBench(bits="W8A8")),
    "ptq4vm": (VimMicro(), Ptq4Vm(bits="W8A8")),
}


@pytest.fixture
def compiled() -> None:
    if native_code.library("tta_bench_quantizers._core", "kernels.cpp") is None:
        pytest.skip("no C++ compiler here")


@pytest.fixture(scope="module")
def images() -> Tensor:
    return Cifar10Mini().source_images()[:32]


def odd_numbers() -> Tensor:
    """Values of every size and sign, the steps' halves, and what is no number."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(3, 5, 7, 34, generator=rng) * 10 ** (-6 * torch.rand(3, 5, 7, 34, generator=rng))
    x[0, :, 0] = (torch.arange(5 * 34).view(5, 34) - 80) * (ONE / 2)
    x[1, 0, 0, :6] = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, -0.0, 1e-45])
    return x


def assert_same(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


@pytest.fixture(scope="module")
def networks(images: Tensor) -> Callable[[str], Model]:
    """Copies of the quantised networks, by name; each is calibrated once, roughly."""

    @cache
    def original(name: str) -> Model:
        source, quantizer = NETWORKS[name]
        return quantizer.quantize(source.build(), images[:8])

    return lambda name: deepcopy(original(name))


# -- the same numbers ------------------------------------------------------------------------------


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", QUANTISERS)
def test_one_pass_gives_what_many_give(name: str, layout: str, threads: int) -> None:
    torch.set_num_threads(threads)
    quantiser, x = QUANTISERS[name], LAYOUTS[layout](odd_numbers().repeat(1, 1, 1, 20 * threads))
    assert kernels.available(x)
    before = x.clone()
    assert_same(quantiser.fused(x), quantiser.eager(x))
    assert_same(x, before)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("bits", [3, 4, 5])
@pytest.mark.parametrize("q", [10, 37, 61, 137])
def test_comparisons_stand_for_the_logarithm_at_every_float_near_a_step(bits: int, q: int) -> None:
    quantiser = AdaLogActivation(torch.tensor(0.73), torch.tensor(q), bits, GELU_DEPTH)
    thresholds = quantiser.thresholds
    assert thresholds is not None
    inside = thresholds[thresholds.isfinite()]
    near = inside.view(torch.int32)[:, None] + torch.arange(-3000, 3000, dtype=torch.int32)
    x = near.view(torch.float32)
    assert_same(quantiser.fused(x), quantiser.eager(x))


def test_codes_that_do_not_fall_have_no_thresholds() -> None:
    def codes(x: Tensor) -> Tensor:
        return ((x < 1) ^ (x.view(torch.int32) == torch.tensor(1.0).view(torch.int32) - 3)).float()

    assert find_thresholds(codes, 1) is None
    assert find_thresholds(lambda x: (x < 1).float(), 1) == torch.tensor([1.0])


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_compiled_and_eager_agree_bit_for_bit(
    name: str, networks: Callable[[str], Model], images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs, states = [], []
    for form in (kernels.available, lambda x: False):
        monkeypatch.setattr(kernels, "available", form)
        model = networks(name)
        method = Zoa(**Zoa.presets(model.target()))
        method.setup(deepcopy(model), Source(images[:16], 16))
        outputs.append([model(images[:7]), *(method.step(x) for x in images.split(16))])
        states.append(method.state_dict()["residual"])
    assert all(map(torch.equal, *outputs))
    assert torch.equal(*states)


# -- tensors of one's own --------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
def test_nothing_that_others_read_is_overwritten(
    name: str, networks: Callable[[str], Model], images: Tensor
) -> None:
    model = networks(name)
    x, hidden = images.clone(), model.enter(model.stem(images))
    for block in model.blocks:
        before = hidden.clone()
        after = block(hidden)
        assert torch.equal(hidden, before)
        hidden = after
    z = model.finish(hidden)
    before = z.clone()
    model.head(z)
    assert torch.equal(z, before)
    assert torch.equal(images, x)


@pytest.mark.usefixtures("compiled")
def test_hidden_layers_and_attention_maps_are_quantised_where_they_lie(
    networks: Callable[[str], Model],
) -> None:
    model = networks("ptq4vit")
    owners = {n for n, m in model.net.named_modules() if getattr(m, "in_place", False)}
    block = {"attn.qkv.input", "attn.matmul2.a", "attn.proj.input", "mlp.fc1.input", "mlp.fc2.input"}
    assert owners == {f"blocks.{i}.{name}" for i in range(6) for name in block}
    x = torch.rand(4, 65, 64)
    assert model.net.blocks[0].attn.proj.input(x).data_ptr() == x.data_ptr()


# -- without kernels -------------------------------------------------------------------------------


def test_only_plain_numbers_on_a_cpu_are_compiled_for() -> None:
    x = torch.rand(3)
    assert native_code.fits(x)
    assert not native_code.fits(x.double())
    assert not native_code.fits(x.to("meta"))
    assert not native_code.fits(x.requires_grad_())
    assert native_code.fits(x.detach())
    with FakeTensorMode():
        assert not native_code.fits(torch.rand(3))


@pytest.mark.parametrize(
    "setting",
    [{"TTA_BENCH_COMPILE": "0"}, {"CXX": "no-such-compiler"}, {"CXX": "false"}],
    ids=["switched off", "no compiler", "a compiler that fails"],
)
def test_without_a_library_there_is_none_and_nothing_is_left_behind(
    setting: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"TTA_BENCH_CACHE": str(tmp_path), **setting}.items():
        monkeypatch.setenv(name, value)
    assert native_code.library.__wrapped__("tta_bench_quantizers._core", "kernels.cpp") is None
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.usefixtures("compiled")
def test_a_library_is_built_once_unless_it_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = native_code.library.__wrapped__
    monkeypatch.setenv("TTA_BENCH_CACHE", str(tmp_path / "one"))
    assert isinstance(build("tta_bench_quantizers._core", "kernels.cpp"), ctypes.CDLL)
    (path,) = (tmp_path / "one" / "native").iterdir()
    made = path.stat().st_mtime_ns
    build("tta_bench_quantizers._core", "kernels.cpp")
    assert path.stat().st_mtime_ns == made
    damaged = tmp_path / "two" / "native" / path.name
    damaged.parent.mkdir(parents=True)
    damaged.write_text("no library")
    monkeypatch.setenv("TTA_BENCH_CACHE", str(tmp_path / "two"))
    assert isinstance(build("tta_bench_quantizers._core", "kernels.cpp"), ctypes.CDLL)
    assert damaged.stat().st_size == path.stat().st_size


LOAD = """
import sys
from tta_bench.cache import native_code
print(native_code.library("tta_bench_quantizers._core", "kernels.cpp") is not None)
"""


def load_in_a_process(**environment: str) -> str:
    """What a process says that loads the library; it is killed if it maps a truncated one."""
    command, variables = [sys.executable, "-c", LOAD], os.environ | environment
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout


@pytest.mark.usefixtures("compiled")
def test_a_truncated_library_is_built_again(tmp_path: Path) -> None:
    assert load_in_a_process(TTA_BENCH_CACHE=str(tmp_path)) == "True\n"
    (path,) = (tmp_path / "native").iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 3])
    assert load_in_a_process(TTA_BENCH_CACHE=str(tmp_path)) == "True\n"
    assert path.read_bytes() == whole


@pytest.mark.usefixtures("compiled")
def test_where_nothing_can_be_kept_a_library_is_built_for_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TTA_BENCH_CACHE", str(tmp_path / "file" / "cache"))
    assert isinstance(
        native_code.library.__wrapped__("tta_bench_quantizers._core", "kernels.cpp"), ctypes.CDLL
    )


@pytest.mark.usefixtures("compiled")
def test_three_processes_build_one_library_once(tmp_path: Path) -> None:
    real, log = shutil.which(os.environ.get("CXX", "c++")), tmp_path / "log"
    compiler = tmp_path / "compiler"
    compiler.write_text(f'#!/bin/sh\necho built >> "{log}"\nexec {real} "$@"\n')
    compiler.chmod(0o755)
    settings = os.environ | {"TTA_BENCH_CACHE": str(tmp_path / "cache"), "CXX": str(compiler)}
    started = [subprocess.Popen([sys.executable, "-c", LOAD], env=settings) for _ in range(3)]
    assert [process.wait(timeout=120) for process in started] == [0, 0, 0]
    assert log.read_text() == "built\n"


def test_a_quantiser_without_kernels_is_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "available", lambda x: False)
    quantiser = UniformActivation(ONE, None, 8)
    monkeypatch.setattr(quantiser, "fused", nn.Identity())
    assert torch.equal(quantiser(torch.ones(3)), quantiser.eager(torch.ones(3)))
