"""The memory columns: against the paper, and for everything registered."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from tta_bench.api import Bits, Method, Quantizer, Target
from tta_bench.errors import Unsupported
from tta_bench.footprint import account
from tta_bench.planning.estimate import describe_memory
from tta_bench.plugins import registry
from tta_bench_methods.bn_adapt import BnAdapt
from tta_bench_methods.lame import Lame
from tta_bench_methods.shift import Shift
from tta_bench_methods.source import NoAdaptation
from tta_bench_methods.t3a import T3A
from tta_bench_methods.tent import Tent
from tta_bench_quantizers.adalog.quantizer import AdaLog
from tta_bench_quantizers.fp32 import Fp32
from tta_bench_quantizers.mqbench.quantizer import MqBench
from tta_bench_quantizers.uniform import UniformQuantizer

# The paper ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "quantizer", "method", "mib"),
    [
        ("vit-b", Fp32(), NoAdaptation(), 819),
        ("vit-b", Fp32(), Tent(), 5165),
        ("vit-b", Fp32(), Lame(), 819),
        ("vit-b", UniformQuantizer(bits="W8A8"), NoAdaptation(), 205),
        ("vit-b", AdaLog(bits="W4A4"), NoAdaptation(), 102),
        ("resnet-50", UniformQuantizer(bits="W8A8"), NoAdaptation(), 195),
    ],
    ids=lambda value: value if isinstance(value, str) else getattr(value, "bits", type(value).__name__),
)
def test_published_figures(model: str, quantizer: Any, method: Method, mib: float) -> None:
    assert account.account(model, quantizer, method, 64).memory_mib == pytest.approx(mib, rel=0.02)


@pytest.mark.parametrize(("name", "mib"), [("neo", 810.2), ("fozo", 819.4), ("pea", 928.4)])
def test_figures_beside_the_published_ones(name: str, mib: float) -> None:
    """The numbers of docs/methods.md, "Memory beside the paper", which explains what differs."""
    cls = registry.load("methods", name)
    method = cls(**cls.presets(Target("vit-b", "vit", "FP32")))
    assert account.account("vit-b", Fp32(), method, 64).memory_mib == pytest.approx(mib, abs=0.06)


def test_packed_bytes_of_int8_are_a_quarter_and_a_little() -> None:
    full = account.account("vit-b", Fp32(), NoAdaptation()).packed_mib
    packed = account.account("vit-b", UniformQuantizer(bits="W8A8"), NoAdaptation()).packed_mib
    assert full == pytest.approx(330.2, abs=0.1)
    assert 0.25 < packed / full < 0.27


@pytest.mark.parametrize(
    ("model", "narrow", "wide"),
    [
        # FP32 bytes of first and last layer's weights, and of 64 images.
        ("vit-b", UniformQuantizer(bits="W4A4", edge_bits=4), UniformQuantizer(bits="W4A4")),
        ("resnet-50", UniformQuantizer(bits="W2A4", edge_bits=2), MqBench(bits="W2A4")),
    ],
)
def test_edges_of_eight_bits_are_counted(model: str, narrow: UniformQuantizer, wide: Quantizer) -> None:
    edges = {"vit-b": 768 * 768 + 768 * 1000, "resnet-50": 64 * 3 * 49 + 2048 * 1000}[model]
    inner = Bits.parse(wide.bits)
    less, more = (account.account(model, each, NoAdaptation()).memory_parts for each in (narrow, wide))
    assert more["parameters"] - less["parameters"] == pytest.approx(edges * (8 - inner.weight) / 8, abs=1)
    assert more["inputs"] == less["inputs"] * 8 // inner.activation == 64 * 3 * 224 * 224
    assert more["activations"] == less["activations"]


def test_columns_are_sums_of_their_parts_and_say_what_they_are() -> None:
    """At a batch of one the packed network and state, partly in FP32, exceed the ideal peak."""
    found = describe_memory("vit-micro", "uniform", "W8A8", "zoa", {"share_prefix": False}, 2)
    for column, parts in (("memory_mib", "memory_parts_mib"), ("packed_mib", "packed_parts_mib")):
        assert sum(found.data[parts].values()) == pytest.approx(found.data[column], abs=0.08)
    assert found.data["packed_parts_mib"]["method state"] > found.data["memory_parts_mib"]["state"]
    text = found.text
    for name, words in (("memory", "scaled ideally by bits / 32"), ("packed", "state in FP32")):
        table = text[text.index(f"{name}_mib, ") :]
        assert words in table.splitlines()[0]
        sizes = [float(line.split("MiB")[0].split()[-1]) for line in table.split("\n\n")[0].splitlines()[1:]]
        assert sum(sizes[:-1]) == pytest.approx(sizes[-1], abs=0.03)


# Everything -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", registry.names("models"))
def test_every_model_can_be_counted(name: str) -> None:
    report = account.account(name, Fp32(), NoAdaptation(), 8)
    assert report.memory_parts == report.breakdown
    assert sum(report.breakdown.values()) == report.memory_bytes
    assert min(report.breakdown[part] for part in ("parameters", "inputs", "activations")) > 0


CHEAPER = {"foa": {"k": 3}, "pace": {"population": 2}}  # forwards are all alike


@pytest.mark.parametrize("name", registry.names("methods"))
def test_every_method_can_be_counted(name: str) -> None:
    cls = registry.load("methods", name)
    model = "resnet-micro" if "BatchNorm2d" in cls.needs else "vit-micro"
    target = Target(model, model.removesuffix("-micro"), "FP32")
    method = cls(**cls.presets(target) | CHEAPER.get(name, {}))
    before = copy.deepcopy(vars(method))
    report = account.account(model, Fp32(), method, 8)
    assert report.bounded
    assert min(report.breakdown.values()) >= 0
    assert (report.breakdown["gradients"] > 0) == cls.backprop
    assert vars(method) == before


def test_bytes_grow_with_the_batch() -> None:
    small, large = (account.account("vit-micro", Fp32(), NoAdaptation(), size) for size in (8, 16))
    assert large.breakdown["parameters"] == small.breakdown["parameters"]
    assert large.breakdown["inputs"] == 2 * small.breakdown["inputs"]
    assert large.breakdown["activations"] > small.breakdown["activations"]


@pytest.mark.parametrize("method", [Shift(), T3A(), Tent()], ids=lambda m: type(m).__name__)
def test_counts_repeat_and_leave_generators_alone(method: Method) -> None:
    state = torch.random.get_rng_state()
    first, second = (account.account("vit-micro", Fp32(), method, 8) for _ in range(2))
    assert first == second
    assert torch.equal(torch.random.get_rng_state(), state)


def test_gradients_cost() -> None:
    plain, tent = (account.account("vit-micro", Fp32(), m, 8) for m in (NoAdaptation(), Tent()))
    assert tent.memory_bytes > 2 * plain.memory_bytes


def test_what_cannot_run_says_why() -> None:
    with pytest.raises(Unsupported, match="it is quantised"):
        account.account("vit-micro", UniformQuantizer(), Tent(), 8)
    with pytest.raises(Unsupported, match="BatchNorm2d"):
        account.account("vit-micro", Fp32(), BnAdapt(), 8)
