"""Byte counts: by hand, against the paper, against real tensors, and for everything registered."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tta_bench import memory, registry
from tta_bench.api import Method, Model, ModelSource, Source, Target
from tta_bench.bytecount import BLOCK_BYTES, ByteCounter
from tta_bench.errors import Unsupported
from tta_bench.pretend import fake_tensors
from tta_bench.standin import fake_, skeleton
from tta_bench_methods.bn_adapt import BnAdapt
from tta_bench_methods.lame import Lame
from tta_bench_methods.shift import Shift
from tta_bench_methods.source import Source as Unadapted
from tta_bench_methods.t3a import T3A
from tta_bench_methods.tent import Tent
from tta_bench_quantizers.fp32 import Fp32
from tta_bench_quantizers.uniform import Uniform

World = Callable[[], AbstractContextManager[Any]]
worlds = pytest.mark.parametrize("world", [nullcontext, fake_tensors], ids=["real", "fake"])


# Counting -------------------------------------------------------------------------------------------


@worlds
def test_storages_count_in_blocks_until_they_are_freed(world: World) -> None:
    with world(), ByteCounter() as counter:
        small, large = torch.zeros(1), torch.zeros(129)  # 4 and 516 bytes: one block and two
        assert counter.live_bytes == 3 * BLOCK_BYTES
        del small
        assert counter.live_bytes == 2 * BLOCK_BYTES
        del large
    assert counter.live_bytes == 0
    assert counter.peak_bytes == 3 * BLOCK_BYTES


@worlds
def test_views_and_in_place_operations_are_free(world: World) -> None:
    with world(), ByteCounter() as counter:
        x = torch.zeros(64, 64)
        view = x.t()[3:].detach().unsqueeze(0)
        x.add_(1).mul_(2)
        torch.exp(x, out=x)
        assert counter.peak_bytes == 64 * 64 * 4
        del x
        assert counter.live_bytes == 64 * 64 * 4  # the view holds it
        del view
    assert counter.live_bytes == 0


@worlds
def test_a_storage_made_outside_counts_when_first_used(world: World) -> None:
    outside = torch.ones(1024)
    with world(), ByteCounter() as counter:
        total = outside.sum()
        assert counter.live_bytes == 4096 + BLOCK_BYTES
        assert counter.sizes_except([outside]) == [total.untyped_storage().nbytes()] == [4]


# What fake tensors are taken for --------------------------------------------------------------------


def test_conventions() -> None:
    with fake_tensors():
        x, rows = torch.rand(4), torch.rand(4, 3, 5)
        mask = x > 0.5
        assert x[mask].shape == x.masked_select(mask).shape == x.nonzero()[:, 0].shape == (4,)
        assert rows[rows[:, :, 0] > 0].shape == (12, 5)
        assert rows[:, torch.ones(3, dtype=torch.bool)].shape == rows.shape
        assert bool(x.isfinite().all())
        assert not x.isnan().any()
        assert not (~mask).any()
        assert mask.sum().item() == 4
        assert bool(mask.sum() == 0) is False
        assert x.sum().item() == 1.0
        assert int(x.argmax()) == 1
        assert x.tolist() == [1.0] * 4
        assert torch.equal(x, x)
        assert (rows.numpy() == np.zeros((4, 3, 5), np.float32)).all()
        assert np.asarray(mask).dtype == bool
        assert torch.bincount(rows[0, 0].long(), minlength=9).shape == (9,)


def test_a_known_value_is_not_guessed() -> None:
    with fake_tensors():
        assert torch.tensor(3.5).item() == 3.5


def test_generator_states_stay_real() -> None:
    rng = torch.Generator().manual_seed(7)
    with fake_tensors():
        rng.set_state(copy.deepcopy(rng.get_state()))
        assert torch.rand(3, generator=rng).shape == (3,)


# By hand --------------------------------------------------------------------------------------------


class LinearModel(Model):
    """No blocks: images, normalised and flattened, are the features."""

    family = "linear"

    @property
    def blocks(self) -> Sequence[nn.Module]:
        return []

    @property
    def classifier(self) -> nn.Linear:
        return self.net  # type: ignore[return-value]

    def stem(self, x: Tensor, prompt: Tensor | None = None) -> Tensor:
        return self.normalise(x).flatten(1)

    def enter(self, embedded: Tensor) -> Tensor:
        return embedded

    def pool(self, hidden: Tensor) -> Tensor:
        return hidden

    def head(self, z: Tensor) -> Tensor:
        return self.net(z)

    def probe(self, block: int, hidden: Tensor) -> Tensor | None:
        return None

    def stem_samples(self, embedded: Tensor) -> Tensor:
        return embedded

    def new_prompt(self, count: int, rng: torch.Generator) -> Tensor:
        raise NotImplementedError


@dataclass
class Linear(ModelSource):
    """12 inputs, 5 classes."""

    family = "linear"

    def skeleton(self) -> Model:
        facts: dict[str, Any] = dict(mean=(0.5,) * 3, std=(0.5,) * 3)
        return LinearModel(nn.Linear(12, 5), name="linear", num_classes=5, input_size=2, **facts)

    def build(self) -> Model:
        return self.skeleton()

    def fingerprint(self) -> str:
        return ""


@dataclass
class Learner(Method):
    """Trains the linear layer with momentum."""

    backprop = True

    def setup(self, model: Model, source: Source) -> None:
        self.model = model.requires_grad_(True)
        self.optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    @torch.enable_grad()
    def step(self, x: Tensor) -> Tensor:
        logits = self.model(x)
        self.optimizer.zero_grad()
        logits.sum().backward()
        self.optimizer.step()
        return logits.detach()

    def reset(self) -> None:
        pass


def test_linear_by_hand() -> None:
    report = memory.account(Linear(), Fp32(), Unadapted(), batch_size=100)
    assert report.breakdown == {
        "parameters": 4 * 512,  # weight 240, bias 20, mean 12, std 12 bytes
        "inputs": 5120,  # 100 × 12 × 4 = 4800
        "activations": 2 * 5120,  # x - mean, and that / std
        "gradients": 0,
        "state": 0,
    }
    assert report.memory_bytes == 17408
    assert report.packed_bytes == 65 * 4
    assert report.measured_bytes is None
    assert report.bounded


def test_learner_by_hand() -> None:
    report = memory.account(Linear(), Fp32(), Learner(), batch_size=100)
    assert report.breakdown["gradients"] == report.breakdown["state"] == 2 * 512  # weight and bias
    assert report.packed_bytes == 65 * 4 + 65 * 4  # momentum, to the byte
    # The peak is in `normalise`: three images' worth, beside gradients and momentum of the last step.
    assert report.memory_bytes == 4 * 512 + 3 * 5120 + 2 * 1024


def test_ideal_scaling() -> None:
    full = memory.account(Linear(), Fp32(), Unadapted(), 100)
    mixed = memory.account(Linear(), Uniform(bits="W2A4"), Unadapted(), 100)
    assert mixed.breakdown == full.breakdown
    assert mixed.memory_bytes == 2048 * 2 // 32 + (17408 - 2048) * 4 // 32
    assert mixed.packed_bytes < full.packed_bytes


# State ----------------------------------------------------------------------------------------------


@dataclass
class Hoarder(Method):
    """Keeps a vector a batch, up to `capacity`."""

    capacity: int = 1000

    def setup(self, model: Model, source: Source) -> None:
        self.model, self.kept = model, torch.empty(0, 100)

    def step(self, x: Tensor) -> Tensor:
        self.kept = torch.cat([self.kept, torch.zeros(1, 100)])[-self.capacity :].clone()
        return self.model(x)

    def reset(self) -> None:
        pass


@dataclass
class FillingHoarder(Hoarder):
    """Knows its full size."""

    def fill(self) -> None:
        self.kept = torch.empty(self.capacity, 100)


def test_growing_state_is_said_to_be_unbounded() -> None:
    assert not memory.account(Linear(), Fp32(), Hoarder(), 4).bounded
    assert memory.account(Linear(), Fp32(), Hoarder(capacity=2), 4).bounded


def test_fill_brings_the_state_to_its_full_size() -> None:
    report = memory.account(Linear(), Fp32(), FillingHoarder(), 4)
    assert report.bounded
    assert report.packed_bytes == 65 * 4 + 1000 * 100 * 4


def test_t3a_counts_its_full_support_set() -> None:
    report = memory.account("vit-micro", Fp32(), T3A(filter_k=3), 8)
    base = memory.account("vit-micro", Fp32(), Unadapted(), 8)
    rows = 3 * 10
    assert report.bounded
    assert report.packed_bytes - base.packed_bytes == rows * (64 * 4 + 8 + 4)  # vector, label, entropy
    assert not memory.account("vit-micro", Fp32(), T3A(filter_k=-1), 8).bounded


@dataclass
class OneByOne(Learner):
    """Learner, an image at a time."""

    def step(self, x: Tensor) -> Tensor:
        return torch.cat([super(OneByOne, self).step(image) for image in x.split(1)])


@dataclass
class Episodic(OneByOne):
    """The same, declared as independent of other images, and never given many."""

    memory = "none"

    def step(self, x: Tensor) -> Tensor:
        assert len(x) <= 2
        return super().step(x)


def test_methods_that_go_image_by_image_are_continued_in_a_straight_line() -> None:
    continued = memory.account(Linear(), Fp32(), Episodic(), 8)
    counted = memory.account(Linear(), Fp32(), OneByOne(), 8)
    assert continued == counted


# Real and fake agree --------------------------------------------------------------------------------


def _peaks(model: Model, counter: ByteCounter) -> list[int]:
    """Peaks of two steps of TENT: forward, backward and optimizer."""
    method, x, found = Tent(), torch.rand(4, 3, 32, 32), []
    method.setup(model, Source(x))
    for _ in range(2):
        counter.restart()
        method.step(x)
        found.append(counter.peak_bytes)
    return found


@pytest.mark.parametrize("name", ["vit-micro", "resnet-micro", "vim-micro"])
def test_fake_peaks_are_real_peaks(name: str) -> None:
    source = registry.load("models", name)()
    with ByteCounter() as counter, torch.no_grad():
        real = _peaks(source.skeleton(), counter)
    model = skeleton(source)
    with fake_tensors(), ByteCounter() as counter, torch.no_grad():
        fake_(model)
        assert _peaks(model, counter) == real


# The paper ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "quantizer", "method", "mib"),
    [
        ("vit-b", Fp32(), Unadapted(), 819),
        ("vit-b", Fp32(), Tent(), 5165),
        ("vit-b", Fp32(), Lame(), 819),
        ("vit-b", Uniform(bits="W8A8"), Unadapted(), 205),
        ("vit-b", Uniform(bits="W4A4"), Unadapted(), 102),
        ("resnet-50", Uniform(bits="W8A8"), Unadapted(), 195),
    ],
    ids=lambda value: value if isinstance(value, str) else getattr(value, "bits", type(value).__name__),
)
def test_published_figures(model: str, quantizer: Any, method: Method, mib: float) -> None:
    assert memory.account(model, quantizer, method, 64).memory_mib == pytest.approx(mib, rel=0.02)


def test_packed_bytes_of_int8_are_a_quarter_and_a_little() -> None:
    full = memory.account("vit-b", Fp32(), Unadapted()).packed_mib
    packed = memory.account("vit-b", Uniform(bits="W8A8"), Unadapted()).packed_mib
    assert full == pytest.approx(330.2, abs=0.1)
    assert 0.25 < packed / full < 0.27


# Everything -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", registry.names("models"))
def test_every_model_can_be_counted(name: str) -> None:
    report = memory.account(name, Fp32(), Unadapted(), 8)
    assert sum(report.breakdown.values()) == report.memory_bytes
    assert min(report.breakdown[part] for part in ("parameters", "inputs", "activations")) > 0


CHEAPER = {"foa": {"k": 3}}  # forwards are all alike


@pytest.mark.parametrize("name", registry.names("methods"))
def test_every_method_can_be_counted(name: str) -> None:
    cls, model = registry.load("methods", name), "resnet-micro" if name == "bn-adapt" else "vit-micro"
    target = Target(model, model.removesuffix("-micro"), "FP32")
    method = cls(**cls.presets(target) | CHEAPER.get(name, {}))
    before = copy.deepcopy(vars(method))
    report = memory.account(model, Fp32(), method, 8)
    assert report.bounded
    assert min(report.breakdown.values()) >= 0
    assert (report.breakdown["gradients"] > 0) == cls.backprop
    assert vars(method) == before


def test_bytes_grow_with_the_batch() -> None:
    small, large = (memory.account("vit-micro", Fp32(), Unadapted(), size) for size in (8, 16))
    assert large.breakdown["parameters"] == small.breakdown["parameters"]
    assert large.breakdown["inputs"] == 2 * small.breakdown["inputs"]
    assert large.breakdown["activations"] > small.breakdown["activations"]


@pytest.mark.parametrize("method", [Shift(), T3A(), Tent()], ids=lambda m: type(m).__name__)
def test_counts_repeat_and_leave_generators_alone(method: Method) -> None:
    state = torch.random.get_rng_state()
    first, second = (memory.account("vit-micro", Fp32(), method, 8) for _ in range(2))
    assert first == second
    assert torch.equal(torch.random.get_rng_state(), state)


def test_gradients_cost() -> None:
    plain, tent = (memory.account("vit-micro", Fp32(), m, 8) for m in (Unadapted(), Tent()))
    assert tent.memory_bytes > 2 * plain.memory_bytes


def test_what_cannot_run_says_why() -> None:
    with pytest.raises(Unsupported, match="it is quantised"):
        memory.account("vit-micro", Uniform(), Tent(), 8)
    with pytest.raises(Unsupported, match="BatchNorm2d"):
        memory.account("vit-micro", Fp32(), BnAdapt(), 8)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is something to measure")
def test_nothing_is_measured_without_cuda() -> None:
    memory.start_measuring()
    assert memory.measured_bytes() is None
