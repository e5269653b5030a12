"""Steps counted by hand, on a linear layer, and states that grow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tta_bench.api import Method, Model, ModelSource, Source
from tta_bench.footprint import account
from tta_bench_methods.source import NoAdaptation
from tta_bench_methods.t3a import T3A
from tta_bench_quantizers.fp32 import Fp32
from tta_bench_quantizers.uniform import UniformQuantizer

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
    report = account.account(Linear(), Fp32(), NoAdaptation(), batch_size=100)
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
    report = account.account(Linear(), Fp32(), Learner(), batch_size=100)
    assert report.breakdown["gradients"] == report.breakdown["state"] == 2 * 512  # weight and bias
    assert report.packed_bytes == 65 * 4 + 65 * 4  # momentum, to the byte
    # The peak is in `normalise`: three images' worth, beside gradients and momentum of the last step.
    assert report.memory_bytes == 4 * 512 + 3 * 5120 + 2 * 1024


def test_ideal_scaling() -> None:
    full = account.account(Linear(), Fp32(), NoAdaptation(), 100)
    mixed = account.account(Linear(), UniformQuantizer(bits="W2A4"), NoAdaptation(), 100)
    assert mixed.breakdown == full.breakdown
    # The only layer is first and last, so that its weight (240 bytes) and what it reads have 8 bits.
    assert mixed.memory_parts == {
        "parameters": (2048 * 2 + 240 * (8 - 2)) // 32,
        "inputs": 5120 * 8 // 32,
        "activations": 2 * 5120 * 4 // 32,
        "gradients": 0,
        "state": 0,
    }
    assert mixed.memory_bytes == sum(mixed.memory_parts.values())
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
    assert not account.account(Linear(), Fp32(), Hoarder(), 4).bounded
    assert account.account(Linear(), Fp32(), Hoarder(capacity=2), 4).bounded


def test_fill_brings_the_state_to_its_full_size() -> None:
    report = account.account(Linear(), Fp32(), FillingHoarder(), 4)
    assert report.bounded
    assert report.packed_bytes == 65 * 4 + 1000 * 100 * 4


def test_t3a_counts_its_full_support_set() -> None:
    report = account.account("vit-micro", Fp32(), T3A(filter_k=3), 8)
    base = account.account("vit-micro", Fp32(), NoAdaptation(), 8)
    rows = 3 * 10
    assert report.bounded
    assert report.packed_bytes - base.packed_bytes == rows * (64 * 4 + 8 + 4)  # vector, label, entropy
    assert not account.account("vit-micro", Fp32(), T3A(filter_k=-1), 8).bounded


@dataclass
class OneByOne(Learner):
    """Learner, an image at a time."""

    def step(self, x: Tensor) -> Tensor:
        return torch.cat([super(OneByOne, self).step(image) for image in x.split(1)])


@dataclass
class Episodic(OneByOne):
    """The same, declared as independent of other images, and never given more than two images."""

    memory = "none"

    def step(self, x: Tensor) -> Tensor:
        assert len(x) <= 2
        return super().step(x)


def test_methods_that_go_image_by_image_are_continued_in_a_straight_line() -> None:
    continued = account.account(Linear(), Fp32(), Episodic(), 8)
    counted = account.account(Linear(), Fp32(), OneByOne(), 8)
    assert continued == counted
