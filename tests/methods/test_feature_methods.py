"""Invariants of the methods that read features only: NEO, COFA, prior correction."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.methods.streams import images, plain, predict, ready
from tta_bench.api import Model
from tta_bench.plugins import registry
from tta_bench_methods.features.prior_correction import smoothed_prior


@pytest.fixture(params=["vit-micro", "resnet-micro", "vim-micro"])
def model(request: pytest.FixtureRequest) -> Model:
    return registry.load("models", request.param)().build()


def steps(method: Any, batches: list[Tensor]) -> list[Tensor]:
    with torch.no_grad():
        return [method.step(z) for z in batches]


def features(model: Model, sizes: tuple[int, ...] = (5, 8, 3)) -> list[Tensor]:
    """Batches of features of these sizes."""
    with torch.no_grad():
        return [model.features(images(size, seed)) for seed, size in enumerate(sizes)]


# -- NEO -------------------------------------------------------------------------------------------


def test_neo_on_centred_batches_is_the_source(model: Model) -> None:
    batches = [z - z.mean(0) for z in features(model)]
    for z, output in zip(batches, steps(ready("neo", model), batches), strict=True):
        assert torch.allclose(output, model.head(z), atol=1e-4)


@pytest.mark.parametrize(
    ("name", "params", "wanted"),
    [
        ("neo", {}, [True, True, True]),
        ("neo", {"continual": True}, [False, False, False]),
        ("shift", {}, [False, True, True]),  # has no history before the first batch
    ],
)
def test_a_constant_that_is_added_to_all_features_never_moves_neo(
    name: str, params: dict[str, Any], wanted: list[bool], model: Model
) -> None:
    plain_batches = features(model)
    moved = [z + 3 for z in plain_batches]
    a, b = (steps(ready(name, model, **params), batches) for batches in (plain_batches, moved))
    assert [torch.allclose(x, y, atol=1e-3) for x, y in zip(a, b, strict=True)] == wanted


def test_neo_keeps_the_mean_of_all_features_whatever_the_batch_sizes(model: Model) -> None:
    z = torch.cat(features(model))
    for sizes in ((16,), (1, 5, 10), (8, 8)):
        method = ready("neo", model)
        steps(method, list(z.split(list(sizes))))
        assert torch.allclose(method.centre, z.mean(0), rtol=1e-6, atol=1e-6)


def test_the_first_single_image_gets_the_bias_from_neo(model: Model) -> None:
    output = predict(ready("neo", model), images(1))
    assert torch.allclose(output, model.head_bias[None], atol=1e-6)


def test_continual_neo_between_source_and_per_batch_centring(model: Model) -> None:
    batches = features(model)
    still = steps(ready("neo", model, continual=True, alpha=0), batches)
    each = steps(ready("neo", model, continual=True, alpha=1), batches)
    for z, a, b in zip(batches, still, each, strict=True):
        assert torch.equal(a, model.head(z))
        assert torch.allclose(b, model.head(z - z.mean(0)), atol=1e-5)


# -- COFA ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("filtered", [True, False])
def test_cofa_on_identical_neighbours_is_the_source(filtered: bool, model: Model) -> None:
    x = images(1).expand(6, -1, -1, -1)
    output = predict(ready("cofa", model, filter=filtered), x)
    assert torch.allclose(output, plain(model, x).softmax(1), atol=1e-5)


def test_filtered_cofa_is_never_less_confident_than_the_source(model: Model) -> None:
    z = torch.cat(features(model))
    output = steps(ready("cofa", model), [z])[0]
    alone = model.head(z).softmax(1)
    assert (output.amax(1) >= alone.amax(1)).all()
    assert not torch.equal(output, alone)


@pytest.mark.parametrize("filtered", [True, False])
def test_cofa_does_not_depend_on_the_batch_size(filtered: bool, model: Model) -> None:
    z = torch.cat(features(model))
    together, singly = (
        torch.cat(steps(ready("cofa", model, filter=filtered), list(z.split(size)))) for size in (16, 1)
    )
    assert torch.allclose(together, singly, atol=1e-5)
    assert torch.allclose(together.sum(1), torch.ones(16), atol=1e-5)


def test_cofa_averages_with_the_image_before(model: Model) -> None:
    one, two, _ = features(model)
    output = steps(ready("cofa", model, filter=False), [one, two])[1]
    wanted = model.head((two + torch.cat([one[-1:], two[:-1]])) / 2).softmax(1)
    assert torch.allclose(output, wanted, atol=1e-6)


# -- prior correction ------------------------------------------------------------------------------


def test_a_smoothed_prior_sums_to_one_and_has_a_lower_bound() -> None:
    p = torch.randn(7, 10, generator=torch.Generator().manual_seed(0)).mul(4).softmax(1)
    prior = smoothed_prior(p)
    smoothing = (1 / 7) / p.mean(0).max()
    assert prior.sum().item() == pytest.approx(1, abs=1e-6)
    assert (prior >= smoothing / (1 + smoothing * 10)).all()


def test_a_smoothed_prior_by_hand() -> None:
    """s = max(1/B, 1/C)/max π: 1/B for two images of three classes, 1/C for four."""
    two = torch.tensor([[0.8, 0.2, 0.0], [0.6, 0.2, 0.2]])  # π = 0.7, 0.2, 0.1
    for p, least in ((two, 1 / 2), (two.repeat(2, 1), 1 / 3)):
        s = least / 0.7
        wanted = (torch.tensor([0.7, 0.2, 0.1]) + s) / (1 + 3 * s)
        assert torch.allclose(smoothed_prior(p), wanted, atol=1e-6)


@pytest.mark.parametrize("space", ["logits", "probabilities"])
def test_a_uniform_prior_keeps_the_predicted_classes(space: str, model: Model) -> None:
    """Rows in which every class leads once have a uniform mean."""
    z = torch.linalg.pinv(model.head_weight) @ (4 * torch.eye(10) + 1 - model.head_bias[:, None])
    logits = model.head(z.T)
    assert torch.allclose(smoothed_prior(logits.softmax(1)), torch.full((10,), 0.1), atol=1e-4)
    output = steps(ready("prior-correction", model, space=space), [z.T])[0]
    assert torch.equal(output.argmax(1), logits.argmax(1))


def test_prior_correction_multiplies_logits_or_probabilities(model: Model) -> None:
    z = features(model)[1]
    logits = model.head(z)
    prior = smoothed_prior(logits.softmax(1))
    released, meant = (
        steps(ready("prior-correction", model, space=s), [z])[0] for s in ("logits", "probabilities")
    )
    assert torch.allclose(released, logits * prior)
    weighted = logits.softmax(1) * prior
    assert torch.allclose(meant.softmax(1), weighted / weighted.sum(1, keepdim=True), atol=1e-6)


@pytest.mark.parametrize("name", ["neo", "cofa", "prior-correction"])
def test_a_broken_image_is_skipped_counted_and_touches_no_later_batch(name: str, model: Model) -> None:
    one, broken, two = features(model)
    broken[-1] = torch.nan
    undisturbed, disturbed = (ready(name, model) for _ in range(2))
    wanted, found = steps(undisturbed, [one, two])[-1], steps(disturbed, [one, broken, two])[-1]
    assert (undisturbed.skipped_updates, disturbed.skipped_updates) == (0, 1)
    assert torch.equal(wanted, found)
