"""Invariants of the learning-free methods: source, BN-Adapt, LAME, T3A, shift."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.methods.streams import images, plain, predict, ready
from tta_bench.api import Model
from tta_bench.plugins import registry


@pytest.fixture(params=["vit-micro", "resnet-micro", "vim-micro"])
def model(request: pytest.FixtureRequest) -> Model:
    return registry.load("models", request.param)().build()


@pytest.fixture
def resnet() -> Model:
    return registry.load("models", "resnet-micro")().build()


def test_source_is_the_model(model: Model) -> None:
    assert torch.equal(predict(ready("source", model), images()), plain(model, images()))


@pytest.mark.parametrize(
    ("name", "params"),
    [("bn-adapt", {"variant": "ema"}), ("bn-adapt", {"variant": "cumulative"}), ("shift", {}), ("t3a", {})],
)
def test_a_broken_batch_is_skipped_and_counted(name: str, params: dict[str, Any], resnet: Model) -> None:
    broken = images(8, seed=3)
    broken[0] = torch.nan
    undisturbed, disturbed = (ready(name, copy.deepcopy(resnet), **params) for _ in range(2))
    for method, stream in ((undisturbed, [images(8)]), (disturbed, [images(8), broken])):
        for x in stream:
            predict(method, x)
    assert (undisturbed.skipped_updates, disturbed.skipped_updates) == (0, 1)
    assert torch.equal(predict(undisturbed, images(8, seed=4)), predict(disturbed, images(8, seed=4)))


# -- BN-Adapt --------------------------------------------------------------------------------------


def bn(model: Model, x: Tensor, **params: Any) -> Tensor:
    return predict(ready("bn-adapt", copy.deepcopy(model), **params), x)


def test_bn_alpha_zero_is_source(resnet: Model) -> None:
    ours = bn(resnet, images(), variant="alpha", alpha=0.0)
    assert torch.allclose(ours, plain(resnet, images()), atol=1e-5)


def test_bn_alpha_one_is_test_up_to_the_unbiased_variance(resnet: Model) -> None:
    x = images(64)
    test, alpha = bn(resnet, x, variant="test"), bn(resnet, x, variant="alpha", alpha=1.0)
    assert not torch.equal(test, alpha)
    assert torch.allclose(test, alpha, atol=0.05 * test.abs().max().item())


def test_bn_prior_zero_and_first_cumulative_are_alpha_one(resnet: Model) -> None:
    alpha = bn(resnet, images(), variant="alpha", alpha=1.0)
    assert torch.equal(alpha, bn(resnet, images(), variant="prior", prior=0))
    assert torch.equal(alpha, bn(resnet, images(), variant="cumulative"))


def test_bn_prior_is_alpha_of_the_batch_size(resnet: Model) -> None:
    prior = bn(resnet, images(12), variant="prior", prior=4)
    assert torch.equal(prior, bn(resnet, images(12), variant="alpha", alpha=12 / 16))


def test_bn_ema_remembers_and_forgets(resnet: Model) -> None:
    method = ready("bn-adapt", resnet, variant="ema", alpha=0.5)
    first = predict(method, images())
    assert not torch.equal(first, predict(method, images()))
    method.reset()
    assert torch.equal(first, predict(method, images()))


def test_bn_refuses_models_without_batch_norm() -> None:
    vit = registry.load("models", "vit-micro")().build()
    reason = registry.load("methods", "bn-adapt")().unsupported(vit)
    assert reason == "needs BatchNorm2d layers, and vit-micro has none"


# -- LAME ------------------------------------------------------------------------------------------


def test_lame_without_affinity_is_source(model: Model) -> None:
    from tta_bench_methods.lame import laplacian_optimization

    p = plain(model, images()).softmax(1)
    y = laplacian_optimization(-torch.log(p + 1e-10), torch.zeros(12, 12))
    assert torch.allclose(y, p, atol=1e-6)


@pytest.mark.parametrize("affinity", ["knn", "rbf", "linear"])
def test_lame_gives_probabilities_and_copes_with_one_image(affinity: str, model: Model) -> None:
    method = ready("lame", model, affinity=affinity)
    y = predict(method, images())
    assert torch.allclose(y.sum(1), torch.ones(12), atol=1e-5)
    alone = predict(method, images(1))
    assert torch.allclose(alone, plain(model, images(1)).softmax(1), atol=1e-6)


@pytest.mark.parametrize(("affinity", "symmetric"), [("knn", False), ("rbf", True), ("linear", True)])
def test_lame_gives_identical_images_identical_rows(affinity: str, symmetric: bool, model: Model) -> None:
    """Not so for symmetrised kNN: a third image's k-th neighbour is only one of the two."""
    x = images()
    x[3] = x[7]
    y = predict(ready("lame", model, affinity=affinity, symmetric=symmetric), x)
    assert torch.allclose(y[3], y[7], atol=1e-6)


def test_lame_energy_never_rises_for_a_symmetric_positive_affinity() -> None:
    rng = torch.Generator().manual_seed(0)
    z = F.normalize(torch.randn(10, 5, generator=rng).double(), dim=1)
    unary = torch.rand(10, 4, generator=rng).double() * 3
    a, y, energies = z @ z.T, (-unary).softmax(1), []
    for _ in range(20):
        energies.append((unary * y + y * y.log()).sum() - 0.5 * (y * (a @ y)).sum())
        y = (a @ y - unary).softmax(1)
    assert all(later <= earlier + 1e-10 for earlier, later in pairwise(energies))


# -- T3A -------------------------------------------------------------------------------------------


def test_t3a_keeps_at_most_k_supports_a_class(model: Model) -> None:
    method = ready("t3a", model, filter_k=2)
    for seed in range(4):
        predict(method, images(seed=seed))
    assert torch.bincount(method.labels).max() <= 2  # type: ignore[attr-defined]


def test_t3a_keeps_all_with_minus_one(model: Model) -> None:
    method = ready("t3a", model, filter_k=-1)
    predict(method, images(12))
    assert len(method.supports) == 10 + 12  # type: ignore[attr-defined]


def test_t3a_with_one_support_keeps_the_most_certain(model: Model) -> None:
    method: Any = ready("t3a", model, filter_k=1)
    everything: Any = ready("t3a", model, filter_k=-1)
    for seed in range(3):
        predict(method, images(seed=seed))
        predict(everything, images(seed=seed))
    for label in method.labels.unique():
        best = everything.entropies[everything.labels == label].min()
        assert method.entropies[method.labels == label] == best


def test_t3a_starts_as_the_head_without_bias_and_with_unit_rows(model: Model) -> None:
    method: Any = ready("t3a", model)
    labels = (model.head_weight @ model.head_weight.T + model.head_bias).argmax(1)
    sums = torch.zeros_like(model.head_weight)
    sums.index_add_(0, labels, F.normalize(model.head_weight, dim=1))
    assert torch.allclose(method._prototypes(), F.normalize(sums, dim=1), atol=1e-6)


# -- shift -----------------------------------------------------------------------------------------


def test_shift_leaves_the_first_batch_alone(model: Model) -> None:
    assert torch.equal(predict(ready("shift", model), images()), plain(model, images()))


def test_shift_follows_a_running_mean(model: Model) -> None:
    method: Any = ready("shift", model)
    batches = [images(seed=seed) for seed in range(3)]
    z = [model.features(x).detach() for x in batches]
    for x in batches[:2]:
        predict(method, x)
    mean = 0.9 * z[0].mean(0) + 0.1 * z[1].mean(0)
    wanted = model.head(z[2] + method.source_mean - mean)
    assert torch.allclose(predict(method, batches[2]), wanted, atol=1e-5)


def test_shift_does_nothing_at_the_source_mean(model: Model) -> None:
    method: Any = ready("shift", model)
    method.history.mean = method.source_mean.double()
    assert torch.equal(predict(method, images()), plain(model, images()))
