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
from tta_bench_methods._shared.gradient import affine_parameters, derived_seed, entropy
from tta_bench_methods._shared.jitter import jitter, sharp_jitter
from tta_bench_methods._shared.losses import (
    cross_entropy,
    generalised_cross_entropy,
    information_maximisation,
    pseudo_label,
    soft_likelihood_ratio,
    symmetric_cross_entropy,
)
from tta_bench_methods._shared.teacher import weights_and_biases
from tta_bench_methods.continual.petta import class_statistics
from tta_bench_methods.features.prior_correction import smoothed_prior
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


def test_information_maximisation_is_the_mean_entropy_minus_that_of_the_mean() -> None:
    p = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
    mean = torch.tensor([0.4, 0.25, 0.35])
    wanted = -(p * p.log()).sum(1).mean() + (mean * mean.log()).sum()
    assert information_maximisation(p.log()).item() == pytest.approx(wanted.item(), abs=1e-6)


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
def test_a_broken_image_is_counted_and_moves_no_parameter_whatever_the_loss(loss: str, vit: Model) -> None:
    """The gradient at logits that are not finite is not finite either, even if their image has no weight."""
    method = ready("tent", vit, loss=loss, lr=0.1)
    vit.classifier.weight.detach().mul_(100)  # all images are confident
    before, broken = [p.detach().clone() for p in method.parameters], STREAM[0].clone()
    broken[0] = torch.nan
    predict(method, broken)
    assert method.skipped_updates == 1
    assert same(before, [p.detach() for p in method.parameters])


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


def test_the_output_of_roid_is_the_prior_correction_of_its_first_pass(model: Model) -> None:
    logits = unadapted(model)[0]
    wanted = logits * smoothed_prior(logits.softmax(1))
    assert torch.allclose(outputs("roid", model)[0], wanted, atol=1e-5)
    assert not torch.allclose(logits, wanted, atol=1e-2)


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
    assert 0 < method.drift(labels) < 1
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
    assert torch.equal(means[9], z.mean(0))
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


# -- steps by hand ---------------------------------------------------------------------------------


PLAIN_SGD: dict[str, Any] = {"optimizer": "sgd", "momentum": 0.0, "lr": 0.1}


def stepped(parameters: list[Any], loss: Tensor, lr: float = 0.1) -> list[Tensor]:
    """The parameters after a step of plain gradient descent."""
    gradients = torch.autograd.grad(loss, parameters)
    return [p.detach() - lr * g for p, g in zip(parameters, gradients, strict=True)]


def crossed(target: Tensor, logits: Tensor) -> Tensor:
    """−Σ_c p_c·log p'_c of each row."""
    return -(target.softmax(1) * logits.softmax(1).log()).sum(1)


def moved(parameters: list[Any], expected: list[Tensor]) -> bool:
    return same([p.detach() for p in parameters], expected, atol=2e-5)


def test_a_step_of_roid_by_hand(vit: Model) -> None:
    """The second batch is smaller; its loss is divided by the size of the first."""
    options = {"nesterov": False, "source_momentum": 1.0, "prior_correction": False}
    method = ready("roid", vit, **PLAIN_SGD, **options)
    first, second = images(6), images(4, seed=1)
    q = 0.9 * torch.full((10,), 0.1) + 0.1 * plain(vit, first).softmax(1).mean(0)
    predict(method, first)
    with torch.enable_grad():
        logits = vit(second)
        p = logits.detach().softmax(1)
        u, v = 1 - torch.cosine_similarity(q[None], p), -entropy(logits.detach())
        u, v = ((each - each.min()) / (each.max() - each.min()) for each in (u, v))
        kept = u >= u.mean()
        view = vit(sharp_jitter(second[kept], derived_seed(method.seed, 2)))
        cut = logits[kept].softmax(1).clamp_max(0.99)
        losses = -(cut * (cut / (1 - cut) + 1e-5).log()).sum(1)
        losses = losses + (crossed(view, logits[kept]) + crossed(logits[kept], view)) / 2
        expected = stepped(method.parameters, (torch.exp(3 * u * v)[kept] * losses).sum() / 6)
    assert 0 < int(kept.sum()) < 4
    predict(method, second)
    assert moved(method.parameters, expected)


def test_a_step_of_rotta_by_hand(vit: Model) -> None:
    source = copy.deepcopy(vit)
    method = ready("rotta", vit, **PLAIN_SGD, capacity=6, teacher_rate=0.25)
    predict(method, STREAM[0])
    x, ages = method.images.batch(), torch.tensor(method.images.ages) / 6
    parameters = [p.requires_grad_() for p in affine_parameters(source.norms())]
    with torch.enable_grad():
        student = source(jitter(x, derived_seed(method.seed, 6)))
        loss = (ages.neg().exp() / (1 + ages.neg().exp()) * crossed(plain(source, x), student)).mean()
        expected = stepped(parameters, loss)
    assert moved(method.parameters, expected)
    teacher = [0.75 * p.detach() + 0.25 * new for p, new in zip(parameters, expected, strict=True)]
    assert moved(method.teacher_affine, teacher)


def test_the_drift_of_petta_by_hand(vit: Model) -> None:
    method = ready("petta", vit)
    variances = method.source_variances
    method.class_means = method.source_means.clone()
    method.class_means[3] += 0.5 * variances[3].sqrt()
    gaps = torch.stack([0.25 * variances[3] / (variances[3] + 1e-6), torch.zeros_like(variances[5])])
    wanted = 1 - float(torch.exp(-gaps.mean()))
    assert method.drift(torch.tensor([3, 5, 3, 3])) == pytest.approx(wanted, abs=1e-5)
    assert method.drift(torch.tensor([5])) == 0


@pytest.mark.parametrize("loss", ["ce", "sce"])
def test_a_step_of_petta_by_hand(loss: str, vit: Model) -> None:
    """On the second batch, when student, teacher and anchor differ."""
    method = ready("petta", vit, **PLAIN_SGD, teacher_rate=0.5, adaptive=False, loss=loss)
    predict(method, STREAM[0])
    student, teacher, anchor = (copy.deepcopy(each) for each in (vit, method.teacher, method.anchor))
    assert torch.equal(predict(method, STREAM[1]), plain(teacher, STREAM[1]))
    x, parameters = method.images.batch(), affine_parameters(student.norms())
    target = plain(teacher, x)
    with torch.enable_grad():
        view, own = student(jitter(x, derived_seed(method.seed, method.images.arrived))), student(x)
        taught = crossed(target, view)
        if loss == "sce":
            pairs = ((target, view), (view, target), (target, own), (own, target))
            taught = torch.stack([crossed(*pair) for pair in pairs]).mean(0)
        expected = stepped(parameters, (taught + crossed(plain(anchor, x), view)).mean())
    assert moved(method.parameters, expected)


def test_drift_slows_the_teacher_of_petta_and_pulls_to_the_source(vit: Model) -> None:
    found = []
    for drift in (0.0, 0.4):
        method = ready("petta", copy.deepcopy(vit), **PLAIN_SGD, teacher_rate=0.5)
        for p in method.parameters:
            p.detach().add_(0.1)
        method.drift = lambda labels, drift=drift: drift
        predict(method, STREAM[0])
        found.append(method)
    calm, drifting = found
    sources = calm.source_parameters
    start = [(p0 + 0.1).requires_grad_() for p0 in sources]
    with torch.enable_grad():
        pairs = zip(start, sources, strict=True)
        cosines = torch.stack([(p @ p0) / (p.norm() * p0.norm()).clamp_min(1e-8) for p, p0 in pairs])
        gradients = torch.autograd.grad(cosines.mean(), start)
    # λ = γ·λ₀ = 4, and the learning rate is 0.1.
    pulled = [p.detach() + 0.4 * g for p, g in zip(calm.parameters, gradients, strict=True)]
    assert moved(drifting.parameters, pulled)
    assert not moved(calm.parameters, pulled)
    for method, rate in ((calm, 0.5), (drifting, 0.3)):
        both = zip(sources, method.parameters, strict=True)
        assert moved(method.teacher_affine, [(1 - rate) * p0 + rate * p.detach() for p0, p in both])


def test_at_the_source_petta_is_as_like_it_as_can_be(vit: Model) -> None:
    method = ready("petta", vit)
    for p, p0 in zip(method.parameters, method.source_parameters, strict=True):
        p.detach().fill_(1.0)
        p0.fill_(1.0)
    assert method.likeness().item() == pytest.approx(1, abs=1e-6)
    method.parameters[0].detach().fill_(-1.0)
    assert method.likeness().item() == pytest.approx(1 - 2 / len(method.parameters), abs=1e-6)


def test_a_step_of_note_by_hand(resnet: Model) -> None:
    method = ready("note", resnet, **PLAIN_SGD | {"lr": 10.0}, capacity=6)
    for layer in method.iabn:
        layer.learning = True
    with torch.enable_grad():
        p = resnet(STREAM[0]).softmax(1)
        expected = stepped(method.parameters, -(p * (p + 1e-6).log()).mean(), lr=10.0)
    running = [layer.proposed.detach() for layer in method.iabn]
    for layer in method.iabn:
        layer.learning = False
    predict(method, STREAM[0])  # fills the memory
    assert moved(method.parameters, expected)
    assert same([layer.running for layer in method.iabn], running, atol=1e-5)


def test_a_step_of_santa_by_hand(vit: Model) -> None:
    """The student's probabilities weigh the anchor's log-probabilities, not the other way round."""
    source = copy.deepcopy(vit)
    method = ready("santa", vit, **PLAIN_SGD, nesterov=False, contrast_weight=0.0)
    predict(method, STREAM[0])
    trained = affine_parameters(vit.norms())
    with torch.enable_grad():
        x = STREAM[1]
        anchor, logits = (
            plain(source, x).detach(),
            torch.cat([vit(x), vit(jitter(x, derived_seed(method.seed, 2)))]),
        )
        anchors = torch.cat([anchor, anchor])
        gradients = [
            torch.autograd.grad(loss.mean(), trained, retain_graph=True)
            for loss in (crossed(logits, anchors), crossed(anchors, logits))
        ]
    expected, reverse = (
        [p.detach() - 0.1 * g for p, g in zip(trained, each, strict=True)] for each in gradients
    )
    predict(method, x)
    assert moved(trained, expected)
    assert not moved(trained, reverse)


def test_a_step_of_rmt_by_hand(vit: Model) -> None:
    options = {"nesterov": False, "contrast_weight": 0.0, "teacher_momentum": 0.75}
    method = ready("rmt", vit, **PLAIN_SGD | options | {"lr": 0.01})
    predict(method, STREAM[0])
    trained, teacher = weights_and_biases(vit), weights_and_biases(method.teacher)
    before, x = [p.clone() for p in teacher], STREAM[1]
    with torch.enable_grad():
        target = plain(method.teacher, x)
        both = (vit(x), vit(jitter(x, derived_seed(method.seed, 2))))
        losses = torch.stack([crossed(each, target) + crossed(target, each) for each in both])
        expected = stepped(trained, losses.sum(0).mean() / 4, lr=0.01)
        wanted = both[0].detach() + target
    assert torch.allclose(predict(method, x), wanted, atol=1e-5)
    assert moved(trained, expected)
    assert moved(teacher, [0.75 * a + 0.25 * b for a, b in zip(before, expected, strict=True)])


def test_the_contrastive_loss_by_hand(vit: Model) -> None:
    contrast = ready("santa", vit).contrast
    with torch.no_grad():
        z, view = vit.features(STREAM[0][:3]), vit.features(STREAM[1][:3])
        near = [torch.cosine_similarity(row[None], contrast.prototypes).argmax() for row in z]
        rows = contrast.project(torch.cat([contrast.prototypes[torch.stack(near)], z, view]))
        loss = contrast.loss(z, view).item()
    assert torch.allclose(rows.norm(dim=1), torch.ones(9), atol=1e-5)
    shares = []
    for i, row in enumerate(rows):
        others = {j: float(torch.exp(row @ rows[j] / 0.1)) for j in range(9) if j != i}
        shares += [others[j] / sum(others.values()) for j in others if j % 3 == i % 3]
    assert len(shares) == 18
    assert loss == pytest.approx(-torch.tensor(shares).log().mean().item(), rel=1e-4)


# -- ActMAD ----------------------------------------------------------------------------------------


def test_actmad_on_its_own_source_batch_has_no_loss(model: Model) -> None:
    x = images(8)
    method: Any = registry.load("methods", "actmad")()
    method.setup(model, Source(x, 8))
    assert method.distance(method._pass(x)[1]).item() == pytest.approx(0, abs=1e-5)
    assert method.distance(method._pass(images(8, seed=4))[1]) > 0.01


def test_the_targets_of_actmad_are_means_over_batches_at_every_position(model: Model) -> None:
    method = ready("actmad", model)  # two batches of eight clean images
    outputs: list[Tensor] = []
    handle = model.norms()[1].module.register_forward_hook(lambda *call: outputs.append(call[2]))
    for x in images(16, seed=9).split(8):
        plain(model, x)
    handle.remove()
    for row, statistic in zip(method.targets[1], (torch.var, torch.mean), strict=True):
        wanted = (statistic(outputs[0], 0) + statistic(outputs[1], 0)) / 2
        assert torch.allclose(row, wanted, atol=1e-5)


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
    shares = weights * method.frequencies[p.argmax(1)]
    assert torch.allclose(shares, shares[:1].expand(32)), "a weight is inverse to the frequency"


def test_class_frequencies_of_delta_take_in_a_twentieth_of_the_batch(resnet: Model) -> None:
    method = ready("delta", resnet)
    p = predict(method, STREAM[0]).softmax(1)
    assert torch.allclose(method.frequencies, 0.95 * torch.full((10,), 0.1) + 0.05 * p.mean(0), atol=1e-6)


def test_delta_weighs_entropies_by_the_eta_rule(resnet: Model) -> None:
    rows = torch.randn(6, 10, generator=torch.Generator().manual_seed(0))
    logits = rows * torch.arange(1, 7)[:, None]
    h = entropy(logits)
    weights = 10**0.5 * torch.exp(-h)
    kept, losses = ready("delta", resnet, loss="eta").losses(logits)
    assert torch.equal(kept, weights > 1)
    assert 0 < int(kept.sum()) < 6
    assert torch.allclose(losses, weights * h, atol=1e-6)


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


WITH_GRADIENTS = [name for name in registry.names("methods") if registry.load("methods", name).backprop]


@pytest.mark.parametrize("network", ["vit-micro", "resnet-micro"])
@pytest.mark.parametrize("name", WITH_GRADIENTS)
def test_who_changes_parameters_has_counted_backward_passes(name: str, network: str) -> None:
    model = built(network)
    if registry.load("methods", name)().unsupported(model):
        return  # has a reason, which other tests read
    method = ready(name, model)
    before, counted = [p.detach().clone() for p in model.parameters()], model.passes.backward_images
    for seed in range(4):  # a memory of 64 images learns once
        predict(method, images(16, seed))
    changed = any(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert model.passes.backward_images > counted or not changed
