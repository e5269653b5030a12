"""CMF, RDumb, PeTTA, DELTA, RMT and losses of TENT against small computations of what a step must do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.methods.streams import images, plain, predict, ready
from tta_bench.api import Model, Source
from tta_bench.plugins import registry
from tta_bench_methods._shared.gradient import entropy
from tta_bench_methods._shared.losses import pseudo_label
from tta_bench_methods._shared.memory_method import running_norms
from tta_bench_methods.continual.petta import class_statistics

STREAM = [images(6, seed=seed) for seed in range(4)]
Build = Callable[[str], Model]


@pytest.fixture
def build() -> Build:
    return lambda name: registry.load("models", name)().build()


def with_confidence(p: float) -> Tensor:
    """Logits of an image whose largest of ten probabilities is p."""
    return torch.tensor([[p, *[(1 - p) / 9] * 9]]).log()


# -- CMF -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.02, 0.3])
def test_three_updates_of_the_filter_of_cmf_by_hand(noise: float, build: Build) -> None:
    """With a noise of 0.3 the gain is at its least, 0.89; with 0.02 it depends on P."""
    method = ready("cmf", build("vit-micro"))
    method.process_noise = noise
    source = method.source_parameters[0].clone()
    theta, hidden, variance, gains = source.clone(), source.clone(), 0.0, []
    for move in (100.0, -300.0, 50.0):
        method.parameters[0].detach().add_(move)
        method.return_()
        theta = theta + move
        hidden = 0.99 * hidden + 0.01 * source
        variance = 0.99**2 * variance + noise
        gains.append(max((1 - noise) / (variance + 1 - noise), 0.89))
        variance *= gains[-1]
        hidden = gains[-1] * hidden + (1 - gains[-1]) * theta
        theta = 0.99 * theta + 0.01 * hidden
        assert method.variance == pytest.approx(variance, rel=1e-6)
        assert torch.allclose(method.hidden[0], hidden, rtol=1e-4)
        assert torch.allclose(method.parameters[0], theta, rtol=1e-4)
    assert (set(gains) == {0.89}) == (noise == 0.3)


def test_the_noise_of_cmf_is_for_the_parameters_of_a_vit_b(build: Build) -> None:
    method = ready("cmf", build("vit-micro"))
    assert method.process_noise == pytest.approx(0.005 * sum(p.numel() for p in method.parameters) / 38_400)


# -- RDumb -----------------------------------------------------------------------------------------


def test_rdumb_forgets_the_mean_prediction_and_the_momentum(build: Build) -> None:
    """With a redundancy of 0 only the first batch after a reset is learnt from."""
    params = {"lr": 0.05, "margin": 2.0, "redundancy": 0.0, "reset_every": 2}
    resetting, fresh = (ready("rdumb", build("vit-micro"), **params) for _ in range(2))
    for x in STREAM[:2]:
        predict(resetting, x)
    assert resetting.mean_probability is None
    assert not resetting.updater.state
    start = [p.detach().clone() for p in fresh.parameters]
    for x in STREAM[2:]:
        assert torch.equal(predict(resetting, x), predict(fresh, x))
    assert all(torch.equal(p, p0) for p, p0 in zip(resetting.parameters, start, strict=True))


# -- PeTTA -----------------------------------------------------------------------------------------


def test_the_drift_of_petta_is_measured_before_the_class_means_move(build: Build) -> None:
    method, found = ready("petta", build("vit-micro")), []
    method.learn_with = found.append
    predict(method, STREAM[0])
    predict(method, STREAM[0])
    assert found[0] == 0
    assert found[1] > 0


def test_the_frozen_network_of_petta_has_statistics_of_the_memory(build: Build) -> None:
    method = ready("petta", build("resnet-micro"), capacity=8)
    predict(method, STREAM[0])
    norms = running_norms(method.anchor)
    assert norms
    assert not any(torch.equal(norm.running, norm.source) for norm in norms)


def test_the_drift_of_petta_is_below_one(build: Build) -> None:
    method = ready("petta", build("vit-micro"))
    method.class_means = method.source_means + 1e6
    assert 0.99 < method.drift(torch.arange(10)) < 1


def test_a_class_of_one_image_has_its_own_mean_and_the_variance_of_all(build: Build) -> None:
    z = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    means, variances = class_statistics(z, torch.tensor([0, 0, 0, 1, 2, 2]), build("vit-micro"))
    assert torch.allclose(means[1], z[3], atol=1e-6)
    assert torch.equal(variances[1], z.var(0))


@pytest.mark.parametrize(
    ("params", "wanted"),
    [({}, (4, 1)), ({"loss": "sce"}, (5, 2)), ({"capacity": 256}, (13, 4)), ({"capacity": 8}, (4, 1))],
)
def test_passes_of_petta_count_the_memory_in_batches_of_64(
    params: dict[str, Any], wanted: tuple[int, int]
) -> None:
    assert registry.load("methods", "petta")(**params).passes() == wanted


# -- DELTA, losses ---------------------------------------------------------------------------------


def test_a_step_of_delta_by_hand(build: Build) -> None:
    """Images weigh the inverse frequency of their predicted class."""
    method = ready("delta", build("resnet-micro"), lr=0.1, momentum=0.0)
    method.frequencies = torch.linspace(0.01, 0.19, 10)
    with torch.enable_grad():
        logits = method.model(STREAM[0])
        weights = 1 / method.frequencies[logits.argmax(1)]
        loss = (weights / weights.mean() * entropy(logits)).mean()
        gradients = torch.autograd.grad(loss, method.parameters)
    assert weights.std() > 0
    wanted = [p.detach() - 0.1 * g for p, g in zip(method.parameters, gradients, strict=True)]
    predict(method, STREAM[0])
    for p, each in zip(method.parameters, wanted, strict=True):
        assert torch.allclose(p, each, atol=2e-5)


def test_own_labels_are_used_above_a_probability_of_four_tenths_by_delta(build: Build) -> None:
    logits = torch.cat([with_confidence(p) for p in (0.39, 0.41, 0.8)])
    kept, losses = ready("delta", build("resnet-micro"), loss="pl").losses(logits)
    assert kept.tolist() == [False, True, True]
    assert torch.allclose(losses.exp().reciprocal(), torch.tensor([0.39, 0.41, 0.8]), atol=1e-5)


def test_own_labels_are_used_above_a_probability_of_nine_tenths_by_tent() -> None:
    assert pseudo_label(with_confidence(0.89)) is None
    found = pseudo_label(torch.cat([with_confidence(0.91), with_confidence(0.6)]))
    assert found == pytest.approx(-torch.tensor(0.91).log().item(), abs=1e-5)


# -- RMT, refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize("network", ["vit-micro", "resnet-micro"])
def test_without_learning_rmt_gives_twice_the_logits_of_the_network(network: str, build: Build) -> None:
    method, other = ready("rmt", build(network), lr=0.0, contrast_weight=0.0), build(network)
    other.use_batch_statistics()
    for x in STREAM:
        assert torch.allclose(predict(method, x), 2 * plain(other, x), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("tent", "normalisation layers"),
        ("rmt", "weights and biases"),
        ("cotta", "weights and biases"),
        ("memo", "parameters"),
    ],
)
def test_a_network_without_what_a_method_trains_is_refused(
    name: str, what: str, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = registry.load("methods", name)()
    monkeypatch.setattr(method, "trainable", lambda model: [])
    assert method.unsupported(build("vit-micro")) == f"needs {what}, and vit-micro has none"


def test_actmad_averages_over_batches_that_have_a_variance(build: Build) -> None:
    """The last clean image alone has none, and is left out."""
    clean = images(9, seed=9)
    found, wanted = (registry.load("methods", "actmad")() for _ in range(2))
    found.setup(build("vit-micro"), Source(clean, 8))
    wanted.setup(build("vit-micro"), Source(clean[:8], 8))
    assert all(torch.equal(a, b) for a, b in zip(found.targets, wanted.targets, strict=True))
