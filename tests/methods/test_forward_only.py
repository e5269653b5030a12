"""Invariants of PEA, FOZO and PACE."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.methods.streams import images, plain, predict, ready
from tta_bench.api import Model
from tta_bench.plugins import registry
from tta_bench_methods.pace import most_similar
from tta_bench_methods.pace.projection import Fastfood, walsh_hadamard
from tta_bench_methods.pea import block_outputs, relative, rows_of, view
from tta_bench_methods.pea.whitening import GaussianSums, aligned, gaussian_of

MODELS = ["vit-micro", "resnet-micro", "vim-micro"]


def built(name: str) -> Model:
    return registry.load("models", name)().build()


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Model:
    return built(request.param)


@pytest.fixture(params=["vit-micro", "vim-micro"])
def token_model(request: pytest.FixtureRequest) -> Model:
    return built(request.param)


def forwards(method: Any, x: Tensor) -> float:
    """Forward passes of a step, per image."""
    before = method.model.passes.forward_images
    predict(method, x)
    return (method.model.passes.forward_images - before) / len(x)


def rows(count: int = 400, width: int = 8, seed: int = 0) -> Tensor:
    """Correlated random rows."""
    rng = torch.Generator().manual_seed(seed)
    mixing = torch.randn(width, width, generator=rng)
    return torch.randn(count, width, generator=rng) @ mixing + torch.randn(width, generator=rng)


# -- PEA -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [0, 4])
def test_aligned_rows_have_the_mean_and_covariance_of_the_source(group: int) -> None:
    stream, source = gaussian_of(rows(seed=1), group), gaussian_of(rows(seed=2), group)
    moved = gaussian_of(aligned(rows(seed=1), stream, source.mean, source.root(0.5)), group)
    assert torch.allclose(moved.mean, source.mean, atol=1e-3)
    assert torch.allclose(moved.covariance, source.covariance, atol=2e-2)


@pytest.mark.parametrize("group", [0, 4])
def test_alignment_with_the_same_statistics_changes_nothing(group: int) -> None:
    same = gaussian_of(rows(), group)
    assert torch.allclose(aligned(rows(), same, same.mean, same.root(0.5)), rows(), atol=1e-3)


@pytest.mark.parametrize("group", [0, 4])
def test_a_weight_mixes_rows_with_aligned_ones(group: int) -> None:
    stream, source = gaussian_of(rows(seed=1), group), gaussian_of(rows(seed=2), group)
    whole = aligned(rows(seed=1), stream, source.mean, source.root(0.5))
    mixed = aligned(rows(seed=1), stream, source.mean, source.root(0.5), 0.3)
    assert torch.allclose(mixed, rows(seed=1).lerp(whole, 0.3), atol=1e-3)


@pytest.mark.parametrize("group", [0, 4])
def test_sums_over_batches_give_the_gaussian_of_all(group: int) -> None:
    sums = GaussianSums(group)
    for part in rows().split(37):
        sums.add_(part)
    found, wanted = sums.gaussian(torch.float32), gaussian_of(rows(), group)
    assert torch.allclose(found.mean, wanted.mean, atol=1e-5)
    assert torch.allclose(found.covariance, wanted.covariance, atol=1e-4)
    assert torch.allclose(found.variance, rows().var(0), atol=1e-4)


def test_weights_of_blocks_reach_from_zero_to_one() -> None:
    assert relative(torch.tensor([3.0, 1.0, 2.0])) == [1.0, 0.0, 0.5]
    assert relative(torch.full((3,), 2.0)) == [0.0] * 3


@pytest.mark.parametrize("views", [1, 3])
def test_pea_without_weights_is_the_mean_over_views(
    views: int, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tta_bench_methods.pea.relative", lambda distances: [0.0] * len(distances))
    x = images()
    wanted = torch.stack([plain(model, view(x, i)) for i in range(views)]).mean(0)
    assert torch.allclose(predict(ready("pea", model, views=views), x), wanted, atol=1e-4)


@pytest.mark.parametrize("views", [1, 4])
def test_pea_takes_two_passes_for_each_view(views: int, model: Model) -> None:
    method = ready("pea", model, views=views)
    assert forwards(method, images()) == 2 * views == method.passes()[0]


def test_views_of_pea() -> None:
    x = images(2)
    assert torch.equal(view(x, 0), x)
    assert torch.allclose(view(x, 2), x.flip(-1), atol=1e-5)
    assert torch.allclose(view(x, 3), view(x.flip(-1), 1), atol=1e-5)
    assert torch.allclose(view(torch.full_like(x, 0.3), 1), torch.full_like(x, 0.3))


@pytest.mark.parametrize(("variant", "replaced"), [("corrected", False), ("released", True)])
def test_the_second_batch_replaces_the_statistics_of_released_pea(
    variant: str, replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, only = ready("pea", built("vit-micro"), variant=variant), 2
    # One block alone is aligned, so it reads what it reads in an ordinary pass.
    weights = [float(i == only) for i in range(len(method.sources))]
    monkeypatch.setattr("tta_bench_methods.pea.relative", lambda distances: weights)
    predict(method, images(seed=0))
    old, x = method.stream[only].gaussian.mean, images(seed=1)
    predict(method, x)
    batch = rows_of(list(block_outputs(method.model, x))[only]).mean(0)
    mean = method.stream[only].gaussian.mean
    assert torch.allclose(mean, batch if replaced else old.lerp(batch, 0.02), atol=1e-4)


def test_released_pea_weights_blocks_by_class_tokens_and_refuses_vim() -> None:
    vit = built("vit-micro")
    of_all, of_class = (ready("pea", copy.deepcopy(vit), variant=v) for v in ("corrected", "released"))
    a, b = of_all._compare(images())[1], of_class._compare(images())[1]
    assert not torch.allclose(a, b)
    refusal = registry.load("methods", "pea")(variant="released").unsupported(built("vim-micro"))
    assert "class token" in str(refusal)


def test_pea_forgets_when_the_entropy_rises() -> None:
    method = ready("pea", built("vit-micro"))
    predict(method, images())
    assert any(method.stream)
    method.mean_entropy = -10.0
    predict(method, images())
    assert not any(method.stream)
    assert method.counters() == {"restarts": 1}


# -- FOZO ------------------------------------------------------------------------------------------


def test_fozo_without_perturbation_predicts_with_its_prompt(token_model: Model) -> None:
    method = ready("fozo", token_model)
    method.epsilon = 1e-12
    x, prompt = images(), method.prompt.clone()
    wanted = method._try(x, prompt, None).logits
    assert torch.allclose(predict(method, x), wanted, atol=1e-4)


@pytest.mark.parametrize(("variant", "factor"), [("corrected", 1), ("released", 2)])
def test_the_first_history_of_fozo_is_the_mean_of_both_sides_or_their_sum(
    variant: str, factor: int, token_model: Model
) -> None:
    method = ready("fozo", token_model, variant=variant)
    method.epsilon = 1e-12
    x = images()
    mean = method._try(x, method.prompt, None).feature_mean
    predict(method, x)
    assert torch.allclose(method.history.mean, factor * mean, atol=1e-4)


def test_the_schedule_of_fozo(token_model: Model) -> None:
    method = ready("fozo", token_model)
    rates, sizes = [], []
    for loss in (10.0, 9.0, 8.0, 7.0):
        method._adjust_(loss)
        rates.append(round(method.eta, 3))
        sizes.append(round(method.epsilon, 3))
    assert rates == [0.156, 0.209, 0.246, 0.273]
    assert sizes == [0.45, 0.405, 0.365, 0.328]
    method._adjust_(100.0)
    assert (method.epsilon, method.eta) == (0.5, 0.1)


def test_the_first_loss_of_fozo_is_the_fitness_of_foa(token_model: Model) -> None:
    x = images()
    fozo, foa = ready("fozo", copy.deepcopy(token_model)), ready("foa", token_model, k=2)
    ours = fozo._try(x, fozo.prompt, None)
    theirs = foa._try(x, fozo.prompt.double().flatten().numpy(), None)
    assert ours.fitness == pytest.approx(theirs.fitness, rel=1e-5)


def test_fozo_steps_against_its_gradient_estimate(token_model: Model) -> None:
    method, x = ready("fozo", token_model), images()
    start = method.prompt.clone()
    z = torch.randn(start.shape, generator=_copied(method.rng))
    up, down = (method._try(x, start + sign * 0.5 * z, None).fitness for sign in (1, -1))
    predict(method, x)
    assert torch.allclose(method.prompt, start - 0.156 * (up - down) * z, rtol=1e-3, atol=1e-3)


def _copied(rng: torch.Generator) -> torch.Generator:
    """A generator that goes on as this one will."""
    other = torch.Generator()
    other.set_state(rng.get_state())
    return other


@pytest.mark.parametrize("pairs", [1, 3])
def test_fozo_takes_two_passes_for_each_direction(pairs: int, token_model: Model) -> None:
    method = ready("fozo", token_model, pairs=pairs)
    assert forwards(method, images()) == 2 * pairs == method.passes()[0]


def test_fozo_refuses_feature_maps() -> None:
    refusal = registry.load("methods", "fozo")().unsupported(built("resnet-micro"))
    assert refusal == "inserts prompts between tokens, and resnet-micro has none"


# -- PACE ------------------------------------------------------------------------------------------

SMALL: dict[str, Any] = {"population": 5, "subspace": 12}


@pytest.mark.parametrize(("few", "many"), [(12, 200), (2304, 24_576), (64, 16)])
def test_the_random_map_is_linear_and_keeps_norms_on_average(few: int, many: int) -> None:
    rng = torch.Generator().manual_seed(1)
    project = Fastfood(few, many, rng, torch.device("cpu"))
    v = torch.randn(64, few, generator=rng)
    images_of_v = torch.stack([project(row) for row in v])
    assert images_of_v.shape == (64, many)
    assert torch.allclose(project(2 * v[0] - v[1]), 2 * images_of_v[0] - images_of_v[1], atol=1e-3)
    assert (images_of_v.norm(dim=1) / v.norm(dim=1)).mean().item() == pytest.approx(1, abs=0.05)


def test_walsh_hadamard_twice_is_the_length() -> None:
    x = torch.randn(16, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(walsh_hadamard(walsh_hadamard(x)), 16 * x, atol=1e-4)


def test_zero_in_the_subspace_is_the_source_model(model: Model) -> None:
    method = ready("pace", copy.deepcopy(model), **SMALL)
    model.use_batch_statistics()
    output = method._try(images(), np.zeros(12), None).logits
    assert torch.allclose(output, plain(model, images()), atol=1e-4)


def test_the_first_candidates_of_pace_include_the_source(model: Model) -> None:
    method, x = ready("pace", model, **SMALL), images()
    points = method._points(x)
    method.search.withdraw()
    assert len(points) == 6
    assert not points[-1].any()
    output = predict(method, x)
    source = method._try(x, np.zeros(12), None).fitness
    best = min(method._try(x, point, None).fitness for point in points)
    assert best <= source
    assert output.shape == (12, 10)


@pytest.mark.parametrize("name", MODELS)
def test_a_stopped_pace_takes_one_pass(name: str) -> None:
    method = ready("pace", built(name), **SMALL, stop_below=1e9)
    x = images()
    assert forwards(method, x) == 6
    assert not method.stopped  # the mean starts at zero, so its first move has no share
    assert forwards(method, x) == 6
    assert method.stopped
    assert forwards(method, x) == 1
    point = method.search.mean
    assert forwards(method, x) == 1
    assert np.array_equal(method.search.mean, point)


def test_pace_without_stops_and_detection_searches_for_ever() -> None:
    method = ready("pace", built("vit-micro"), **SMALL, stop_below=0, tau=None, bank_size=0)
    for x in (images(seed=1), images(seed=2) * 0.1, images(seed=3)):
        assert forwards(method, x) == 6
    assert not method.stopped
    assert method.counters() == {"detected_shifts": 0, "stored_vectors": 0}


def test_after_a_shift_the_bank_is_scored_and_begins_the_population() -> None:
    method = ready("pace", built("vit-micro"), **SMALL, stop_below=0, bank_size=2)
    bright, dark = images(seed=1), images(seed=2) * 0.05
    counts = []
    for x in (bright, dark, dark, bright, bright, dark, dark, bright, bright):
        counts.append(forwards(method, x))
        assert len(method.bank) <= 2
    # A new domain is seen after its first batch is predicted; the next batch scores the bank and zero.
    assert counts == [6, 6, 5 + 2, 6, 5 + 3, 6, 5 + 3, 6, 5 + 3]
    assert method.counters() == {"detected_shifts": 4, "stored_vectors": 2}


def test_the_vector_most_similar_to_the_others_leaves_the_bank() -> None:
    assert most_similar(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])) == 2
