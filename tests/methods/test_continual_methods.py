"""Invariants of the methods for long streams: RDumb, ROID, CMF, RoTTA, PeTTA, NOTE, SANTA, RMT, ActMAD,
DELTA, and of TENT's other losses."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.methods.streams import images, plain, predict, ready
from tta_bench.api import Model, Source
from tta_bench.plugins import registry
from tta_bench.plugins.identity import identify
from tta_bench_methods._shared.gradient import entropy
from tta_bench_methods._shared.jitter import sharp_jitter
from tta_bench_methods._shared.losses import (
    cross_entropy,
    generalised_cross_entropy,
    information_maximisation,
    pseudo_label,
    soft_likelihood_ratio,
    symmetric_cross_entropy,
)
from tta_bench_methods.continual.petta import class_statistics
from tta_bench_methods.tent import Tent

STREAM = [images(6, seed=seed) for seed in range(4)]


def built(name: str) -> Model:
    return registry.load("models", name)().build()


@pytest.fixture(params=["vit-micro", "resnet-micro"])
def model(request: pytest.FixtureRequest) -> Model:
    return built(request.param)


@pytest.fixture
def vit() -> Model:
    return built("vit-micro")


@pytest.fixture
def resnet() -> Model:
    return built("resnet-micro")


def outputs(name: str, model: Model, stream: list[Tensor] = STREAM, **params: Any) -> list[Tensor]:
    """What a new instance on a copy of the model predicts."""
    method = ready(name, copy.deepcopy(model), **params)
    return [predict(method, x) for x in stream]


def same(a: list[Tensor], b: list[Tensor], atol: float = 0.0) -> bool:
    return all(torch.allclose(x, y, rtol=0, atol=atol) for x, y in zip(a, b, strict=True))


def unadapted(model: Model) -> list[Tensor]:
    """Predictions with batch statistics, which are those of the source where there is no BatchNorm."""
    other = copy.deepcopy(model)
    other.use_batch_statistics()
    return [plain(other, x) for x in STREAM]


# -- TENT's losses ---------------------------------------------------------------------------------


def test_information_maximisation_of_one_repeated_image_is_zero() -> None:
    row = torch.randn(1, 10, generator=torch.Generator().manual_seed(0))
    assert information_maximisation(row.expand(8, -1)).item() == pytest.approx(0, abs=1e-6)


def test_generalised_cross_entropy_has_no_gradient_at_certainty() -> None:
    logits = torch.zeros(1, 10)
    logits[0, 3] = 40
    logits.requires_grad_(True)
    generalised_cross_entropy(logits).backward()
    assert logits.grad is not None
    assert logits.grad.abs().max() < 1e-6
    uncertain = torch.zeros(1, 10)
    assert generalised_cross_entropy(uncertain).item() == pytest.approx((1 - 0.1**0.8) / 0.8)


def test_pseudo_labels_use_confident_images_only() -> None:
    logits = torch.tensor([[9.0, 0.0, 0.0], [1.0, 0.9, 0.0]])
    assert pseudo_label(logits) == pytest.approx(-logits[0].log_softmax(0)[0].item())
    assert pseudo_label(logits[1:]) is None


@pytest.mark.parametrize("loss", ["im", "pl", "gce"])
def test_another_loss_takes_another_way_from_the_same_first_batch(loss: str, model: Model) -> None:
    entropy_descent, other = (outputs("tent", model, lr=0.05, loss=each) for each in ("entropy", loss))
    assert torch.equal(entropy_descent[0], other[0])
    assert not torch.equal(entropy_descent[-1], other[-1])


def test_the_loss_of_tent_is_in_its_identity_only_if_it_is_not_the_entropy() -> None:
    params = {"lr": 1e-3, "momentum": 0.9, "nesterov": False}
    before, default, other = (
        identify("methods", "tent", params | more, Tent.version, "").key_facts
        for more in ({}, {"loss": "entropy"}, {"loss": "im"})
    )
    assert before == default != other


# -- RDumb -----------------------------------------------------------------------------------------


def test_rdumb_without_a_reset_in_the_stream_is_eta(model: Model) -> None:
    params = {"lr": 0.05, "margin": 2.0, "redundancy": 2.0}
    eta = outputs("eta", model, **params)
    assert same(eta, outputs("rdumb", model, **params))
    assert not same(eta, outputs("rdumb", model, **params, reset_every=2))


def test_rdumb_that_resets_at_every_batch_does_not_adapt(model: Model) -> None:
    assert same(outputs("rdumb", model, lr=0.1, margin=2.0, reset_every=1), unadapted(model))


def test_after_a_reset_rdumb_goes_on_as_from_the_start(model: Model) -> None:
    params = {"lr": 0.05, "margin": 2.0, "redundancy": 2.0, "reset_every": 2}
    assert same(outputs("rdumb", model, **params)[2:], outputs("rdumb", model, STREAM[2:], **params))


# -- ROID and CMF ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["roid", "cmf"])
def test_without_learning_and_correction_they_do_not_adapt(name: str, model: Model) -> None:
    assert same(outputs(name, model, lr=0.0, prior_correction=False), unadapted(model), atol=1e-5)


def test_roid_with_no_weight_of_the_adapted_parameters_stays_at_the_source(model: Model) -> None:
    method = ready("roid", model, source_momentum=0.0, lr=0.1)
    for x in STREAM:
        predict(method, x)
        pairs = zip(method.parameters, method.initial["tensors"], strict=True)
        assert all(torch.equal(p, p0) for p, p0 in pairs)


def test_weights_of_roid_are_zero_or_at_least_one(vit: Model) -> None:
    method = ready("roid", vit)
    p = plain(vit, images(64)).softmax(1)
    weights = method.sample_weights(p, entropy(p.log()))
    assert ((weights == 0) | (weights >= 1)).all()
    assert (weights == 0).any()
    assert (weights > 1).any()


def test_the_soft_likelihood_ratio_is_finite_for_certain_predictions() -> None:
    assert soft_likelihood_ratio(torch.tensor([[1000.0, 0.0, 0.0]])).isfinite().all()


def test_cmf_without_noise_is_roid(model: Model) -> None:
    roid, cmf = (
        outputs(name, model, lr=0.05, **more) for name, more in (("roid", {}), ("cmf", {"noise": 0}))
    )
    assert same(roid, cmf, atol=1e-5)
    assert not same(roid, outputs("cmf", model, lr=0.05, noise=0.5), atol=1e-5)


def test_the_filter_of_cmf_by_hand(vit: Model) -> None:
    method = ready("cmf", vit, noise=0.5)
    theta0 = method.source_parameters[0].clone()
    method.parameters[0].detach().add_(1.0)
    q = 0.5 * sum(p.numel() for p in method.parameters) / 38_400
    kept = max((1 - q) / (q + 1 - q), 0.89)
    method.return_()
    hidden = theta0 + (1 - kept)
    assert torch.allclose(method.hidden[0], hidden, atol=1e-6)
    assert torch.allclose(method.parameters[0], 0.99 * (theta0 + 1) + 0.01 * hidden, atol=1e-5)
    assert method.variance == pytest.approx(kept * q)
    method.reset()
    assert method.variance == 0
    assert torch.equal(method.hidden[0], theta0)


def test_the_sharp_jitter_keeps_sizes_and_ranges_and_depends_on_its_seed() -> None:
    x = images(3)
    view = sharp_jitter(x, seed=1)
    assert view.shape == x.shape
    assert 0 <= view.min() <= view.max() <= 1
    assert torch.equal(view, sharp_jitter(x, seed=1))
    assert not torch.equal(view, sharp_jitter(x, seed=2))


# -- RoTTA, PeTTA ----------------------------------------------------------------------------------


def test_rotta_with_rates_of_zero_is_the_source(model: Model) -> None:
    source = [plain(model, x) for x in STREAM]
    still = outputs("rotta", model, teacher_rate=0.0, norm_momentum=0.0, capacity=4, lr=0.1)
    assert same(source, still, atol=1e-4)


def test_rotta_learns_when_its_memory_is_due(model: Model) -> None:
    method = ready("rotta", model, capacity=12, lr=0.1)
    start = [p.detach().clone() for p in method.parameters]
    predict(method, STREAM[0])
    assert all(torch.equal(a, p) for a, p in zip(start, method.parameters, strict=True))
    predict(method, STREAM[1])
    assert not all(torch.equal(a, p) for a, p in zip(start, method.parameters, strict=True))
    weights = method.timeliness(STREAM[0])
    assert ((weights > 0) & (weights <= 0.5)).all()


def test_the_networks_of_rotta_keep_their_own_statistics(resnet: Model) -> None:
    method = ready("rotta", resnet, capacity=6, norm_momentum=0.5)
    predict(method, STREAM[0])
    count = len(method.layers) // 2
    student, teacher = method.layers[:count], method.layers[count:]
    assert not any(torch.equal(a.running, b.running) for a, b in zip(student, teacher, strict=True))
    assert not any(torch.equal(a.running, a.source) for a in teacher)


def test_petta_without_drift_has_no_pull_and_the_full_rate(model: Model) -> None:
    method = ready("petta", model, capacity=8)
    labels = torch.arange(10)
    assert method.drift(labels) == 0
    method.class_means = method.source_means + 100
    assert 0 < method.drift(labels) <= 1
    assert method.likeness().item() == pytest.approx(1, abs=0.1)  # tensors of zeros have no cosine
    fixed = ready("petta", built(model.name), capacity=8, adaptive=False)
    fixed.class_means = fixed.source_means + 1
    assert fixed.drift(labels) == 0


def test_petta_moves_the_means_of_predicted_classes_only(vit: Model) -> None:
    method = ready("petta", vit)
    z = vit.features(STREAM[0]).detach()
    method.move_means_(z, torch.tensor([0, 0, 0, 4, 4, 4]))
    moved = (method.class_means != method.source_means).any(1)
    assert moved.nonzero().flatten().tolist() == [0, 4]
    wanted = 0.95 * method.source_means[4] + 0.05 * z[3:].mean(0)
    assert torch.allclose(method.class_means[4], wanted, atol=1e-5)


def test_class_statistics_fall_back_to_those_of_all_images(vit: Model) -> None:
    z, labels = (
        torch.randn(6, 5, generator=torch.Generator().manual_seed(0)),
        torch.tensor([0, 0, 0, 1, 2, 2]),
    )
    means, variances = class_statistics(z, labels, vit)
    assert torch.allclose(means[0], z[:3].mean(0), atol=1e-6)
    assert torch.allclose(variances[2], z[4:].var(0), atol=1e-6)
    assert torch.equal(means[1], z.mean(0))
    assert torch.equal(variances[9], z.var(0))


def test_petta_steps_after_every_batch(model: Model) -> None:
    method = ready("petta", model, lr=0.01)
    for x in STREAM[:2]:
        before = [p.detach().clone() for p in method.parameters]
        predict(method, x)
        assert not all(torch.equal(a, p) for a, p in zip(before, method.parameters, strict=True))
    assert 0 < len(method.images) <= 12  # the quota of a class may be full


# -- NOTE ------------------------------------------------------------------------------------------


def test_note_without_learning_is_iabn(resnet: Model) -> None:
    note = outputs("note", resnet, lr=0.0, capacity=4, norm_momentum=0.3)
    assert same(note, outputs("iabn", resnet, capacity=4, momentum=0.3), atol=1e-5)
    assert not same(note, outputs("note", resnet, lr=0.01, capacity=4, norm_momentum=0.3), atol=1e-5)


@pytest.mark.parametrize("name", ["note", "rotta", "petta", "iabn"])
def test_memories_of_images_are_filled_for_byte_counts(name: str, resnet: Model) -> None:
    method = ready(name, resnet, capacity=5)
    method.fill()
    kept = method.state_dict()["images" if name == "iabn" else "kept"]
    assert kept["images"].shape == (5, 3, 32, 32)
    predict(method, STREAM[0])


# -- SANTA, RMT ------------------------------------------------------------------------------------


def test_without_learning_santa_is_the_unadapted_network(model: Model) -> None:
    assert same(outputs("santa", model, lr=0.0, contrast_weight=0.0), unadapted(model), atol=1e-5)


def test_the_first_logits_of_rmt_are_twice_those_of_the_network(model: Model) -> None:
    assert torch.allclose(outputs("rmt", model)[0], 2 * unadapted(model)[0], atol=1e-4)


@pytest.mark.parametrize("name", ["santa", "rmt"])
@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_the_projector_learns_only_with_contrast(name: str, weight: float, vit: Model) -> None:
    method = ready(name, vit, contrast_weight=weight)
    before = [p.detach().clone() for p in method.contrast.projector]
    prototypes = method.contrast.prototypes.clone()
    predict(method, STREAM[0])
    unmoved = [torch.equal(a, p) for a, p in zip(before, method.contrast.projector, strict=True)]
    assert all(unmoved) if not weight else not any(unmoved)
    assert torch.equal(prototypes, method.contrast.prototypes)


def test_the_contrastive_loss_of_three_equal_views_is_lower(vit: Model) -> None:
    contrast = ready("santa", vit).contrast
    z = contrast.prototypes.repeat(2, 1)[:4] if len(contrast.prototypes) > 1 else contrast.prototypes
    noise = torch.randn(z.shape, generator=torch.Generator().manual_seed(0)) * z.std() * 3
    assert contrast.loss(z, z) < contrast.loss(z, z + noise)


def test_cross_entropies_of_a_row_with_itself_are_its_entropy() -> None:
    logits = torch.randn(4, 10, generator=torch.Generator().manual_seed(0))
    for each in (cross_entropy(logits, logits), symmetric_cross_entropy(logits, logits)):
        assert torch.allclose(each, entropy(logits), atol=1e-6)


# -- ActMAD ----------------------------------------------------------------------------------------


def test_actmad_on_its_own_source_batch_has_no_loss(model: Model) -> None:
    x = images(8)
    method: Any = registry.load("methods", "actmad")()
    method.setup(model, Source(x, 8))
    assert method.distance(method._pass(x)[1]).item() == pytest.approx(0, abs=1e-5)
    assert method.distance(method._pass(images(8, seed=4))[1]) > 0.01


def test_actmad_sums_both_mean_distances_of_every_layer(vit: Model) -> None:
    method = ready("actmad", vit)
    found = [
        target + torch.tensor([0.5, 1.5]).view(2, *[1] * (target.dim() - 1)) for target in method.targets
    ]
    assert method.distance(found).item() == pytest.approx(len(method.targets) * (0.5 + 1.5) / 2, rel=1e-4)


def test_the_first_batch_of_actmad_is_the_source(model: Model) -> None:
    assert torch.allclose(outputs("actmad", model)[0], plain(model, STREAM[0]), atol=1e-5)


# -- DELTA -----------------------------------------------------------------------------------------


def test_class_weights_of_delta_have_a_mean_of_one(resnet: Model) -> None:
    method = ready("delta", resnet)
    p = plain(resnet, images(32)).softmax(1)
    assert torch.allclose(method.class_weights(p), torch.ones(32))
    method.frequencies = torch.linspace(0.01, 0.19, 10)
    weights = method.class_weights(p)
    assert weights.mean().item() == pytest.approx(1, abs=1e-5)
    assert weights.std() > 0


def test_delta_without_learning_is_tbr(resnet: Model) -> None:
    tbr = outputs("tbr", resnet)
    assert same(tbr, outputs("delta", resnet, lr=0.0), atol=1e-5)
    assert not same(tbr, outputs("delta", resnet, lr=0.05), atol=1e-5)


def test_the_first_step_of_delta_is_that_of_tent(resnet: Model) -> None:
    """With equal class frequencies the weights are one, and TBR's first batch has its own statistics."""
    methods = [ready(name, copy.deepcopy(resnet), lr=0.01) for name in ("delta", "tent")]
    for method in methods:
        predict(method, STREAM[0])
    delta, tent = (torch.cat([p.detach() for p in method.parameters]) for method in methods)
    start = torch.cat([t.flatten() for t in methods[0].initial["tensors"]])
    # TBR's factor r and offset d are constants for the gradient, as are batch statistics' own terms.
    assert torch.allclose(delta - start, tent - start, atol=1e-5)


@pytest.mark.parametrize("loss", ["pl", "eta"])
def test_the_other_losses_of_delta_select_images(loss: str, resnet: Model) -> None:
    method = ready("delta", resnet, loss=loss)
    logits = torch.cat([torch.zeros(2, 10), 20 * torch.eye(10)[:3]])
    kept, losses = method.losses(logits)
    assert kept.tolist() == [False, False, True, True, True]
    assert losses.isfinite().all()
