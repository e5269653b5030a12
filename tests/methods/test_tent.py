"""TENT: against the model it starts from, and against its own aim."""

from __future__ import annotations

import pytest
import torch

from tta_bench.api import Source, Target
from tta_bench.models.imagenet import VitB
from tta_bench.models.micro import ResNetMicro, VimMicro, VitMicro
from tta_bench_methods._shared.gradient import entropy
from tta_bench_methods.tent import Tent

MODELS = pytest.mark.parametrize("build", [VitMicro, ResNetMicro, VimMicro])
RNG = torch.Generator().manual_seed(0)
BATCHES = list(torch.rand(3, 6, 3, 32, 32, generator=RNG))


def started(build: type, lr: float) -> Tent:
    method = Tent(lr=lr)
    method.setup(build().build(), Source(BATCHES[0]))
    return method


@MODELS
def test_without_learning_it_is_the_source_or_the_batch_statistics_model(build: type) -> None:
    method, model = started(build, 0.0), build().build()
    model.use_batch_statistics()  # changes nothing where there is no BatchNorm
    with torch.no_grad():
        for x in BATCHES:
            assert torch.equal(method.step(x), model(x))


@MODELS
def test_a_small_step_lowers_the_entropy_of_its_batch(build: type) -> None:
    method, x = Tent(lr=1e-4), BATCHES[0].double()  # so small a step is lost in single precision
    method.setup(build().build().double(), Source(x))
    with torch.no_grad():
        before = entropy(method.step(x)).mean()
        after = entropy(method.model(x)).mean()
    assert after < before


@MODELS
def test_momentum_is_remembered_and_forgotten(build: type) -> None:
    method = started(build, 0.01)
    method.step(BATCHES[0])
    assert method.state_dict()["optimizer"]["state"]
    method.reset()
    assert not method.state_dict()["optimizer"]["state"]


def test_a_single_image_is_a_batch() -> None:
    for build in (VitMicro, ResNetMicro, VimMicro):
        assert started(build, 1e-3).step(BATCHES[0][:1]).isfinite().all()


def test_it_learns_all_layer_norms_of_a_vit_b() -> None:
    vit = VitB(weights="random").skeleton()
    assert sum(p.numel() for p in Tent().trainable(vit)) == 38_400


def test_the_learning_rate_of_a_resnet_is_smaller() -> None:
    assert Tent.presets(Target("resnet-50", "resnet", "FP32")) == {"lr": 2.5e-4}
    assert Tent.presets(Target("vit-b", "vit", "FP32")) == {}
