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
from tta_bench_methods._shared.shift_detection import channel_statistics
from tta_bench_methods.pace import most_similar
from tta_bench_methods.pace.projection import Fastfood, walsh_hadamard
from tta_bench_methods.pea import BlockStatistics, block_outputs, relative, rows_of, view
from tta_bench_methods.pea.whitening import Gaussian, GaussianSums, aligned, gaussian_of

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
    assert torch.allclose(aligned(rows(), same, same.mean, same.root(0.5)), rows(), rtol=0, atol=1e-4)


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


def test_the_distance_of_a_block_adds_the_norms_of_both_differences() -> None:
    source = BlockStatistics(torch.zeros(8), torch.ones(8), torch.eye(8)[None])
    moved = rows().mean(0).square().sum().sqrt() + (rows().var(0) - 1).square().sum().sqrt()
    assert source.distance(rows()).item() == pytest.approx(moved.item(), rel=1e-5)


def test_the_first_batch_of_pea_by_hand() -> None:
    """Every block reads what the block before it gave, aligned; statistics are those of all tokens."""
    model, x = built("vit-micro"), images()
    clean = [rows_of(hidden) for hidden in block_outputs(model, images(16, seed=9))]
    found = [rows_of(hidden) for hidden in block_outputs(model, x)]
    gaps = [
        (a.mean(0) - b.mean(0)).norm() + (a.var(0) - b.var(0)).norm()
        for a, b in zip(clean, found, strict=True)
    ]
    hidden = model.enter(model.stem(x))
    for block, source, weight in zip(model.blocks, clean, relative(torch.stack(gaps)), strict=True):
        hidden = block(hidden)
        if weight < 1e-3:
            continue
        y = rows_of(hidden)
        mapped = (y - y.mean(0)) @ power(y, -0.5) @ power(source, 0.5) + source.mean(0)
        hidden = ((1 - weight) * y + weight * mapped).view_as(hidden)
    wanted = model.head(model.finish(hidden))
    assert torch.allclose(predict(ready("pea", model), x), wanted, atol=1e-3)
    assert not torch.allclose(plain(model, x), wanted, atol=0.1)


def power(y: Tensor, exponent: float) -> Tensor:
    """A power of the covariance of rows, with 1e-5 on its diagonal."""
    values, vectors = torch.linalg.eigh(torch.cov(y.T) + 1e-5 * torch.eye(y.shape[1]))
    return vectors @ torch.diag(values.clamp_min(1e-5) ** exponent) @ vectors.T


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


def test_a_change_of_many_times_the_usual_one_replaces_the_statistics_of_pea() -> None:
    """s ← 0.2·δ + 0.8·s; a change above 4·s replaces: from s = 0.1, that of more than 1.6."""
    method, width = ready("pea", built("vit-micro")), 8

    def at(place: float) -> Gaussian:
        return Gaussian(torch.full((width,), place), torch.eye(width)[None] * (1 + place))

    first = method._updated(method._updated(None, at(0.0)), at(0.1))
    assert first.drift == pytest.approx(0.1)
    assert torch.allclose(first.gaussian.mean, torch.full((width,), 0.002))
    assert torch.allclose(first.gaussian.covariance, torch.eye(width)[None] * 1.002)
    for change, replaced in ((1.5, False), (1.7, True)):
        found = method._updated(first, at(0.002 + change))
        assert found.drift == pytest.approx(0.08 + 0.2 * change)
        wanted = 0.002 + change if replaced else 0.002 + 0.02 * change
        assert torch.allclose(found.gaussian.mean, torch.full((width,), wanted), atol=1e-5)


def test_the_usual_entropy_of_pea_is_a_running_mean() -> None:
    method = ready("pea", built("vit-micro"))
    for h, usual, restarts in ((1.0, 1.0, 0), (1.9, 1.18, 0), (2.1, 1.364, 0), (2.4, 1.5712, 1)):
        method._watch(h)
        assert method.mean_entropy == pytest.approx(usual)
        assert method.restarts == restarts


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


@pytest.mark.parametrize(("loss", "rises"), [(10.55, False), (10.6, True)])
def test_fozo_compares_a_loss_with_a_mean_that_it_has_entered(loss: float, rises: bool) -> None:
    """1.05·(0.9·10 + 0.1·L) is 10.558 and 10.563; 1.05·10 would be 10.5."""
    method = ready("fozo", built("vit-micro"))
    method._adjust_(10.0)
    method._adjust_(loss)
    assert (method.epsilon == 0.5) == rises


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


def test_fozo_predicts_with_the_side_of_the_smaller_loss(token_model: Model) -> None:
    method, x = ready("fozo", token_model), images()
    z = torch.randn(method.prompt.shape, generator=_copied(method.rng))
    sides = [method._try(x, method.prompt + sign * 0.5 * z, None) for sign in (1, -1)]
    better, worse = sorted(sides, key=lambda side: side.fitness)
    output = predict(method, x)
    assert torch.allclose(output, better.logits, atol=1e-5)
    assert not torch.allclose(output, worse.logits, atol=1e-3)


def test_later_batches_of_fozo_are_shifted_and_so_is_the_entropy_of_its_loss(token_model: Model) -> None:
    method, x = ready("fozo", token_model), images(seed=1)
    predict(method, images())
    offset = method.source_statistics.means[-1] - method.history.mean
    plain_side, shifted_side = (method._try(x, method.prompt, each) for each in (None, offset))
    _, z = method.model.continue_from(method.model.enter(method.model.stem(x, method.prompt)))
    logits = method.model.head((z + offset).float())
    assert torch.allclose(shifted_side.logits, logits, atol=1e-5)
    gap = shifted_side.fitness - plain_side.fitness
    unshifted = method.model.head(z)
    rise = [-(each.softmax(1) * each.log_softmax(1)).sum() for each in (logits, unshifted)]
    assert gap == pytest.approx((rise[0] - rise[1]).item(), abs=1e-3)
    assert torch.allclose(shifted_side.feature_mean, plain_side.feature_mean)


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
    fittest = method._try(x, method.incumbent, None)
    assert fittest.fitness <= source
    assert torch.allclose(output, fittest.logits, atol=1e-5)


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


def test_pace_stops_by_the_move_of_the_mean_relative_to_the_mean_before() -> None:
    def searched(**params: Any) -> Any:
        method = ready("pace", built("vit-micro"), **SMALL, **params)
        for seed in range(2):
            predict(method, images(seed=seed))
            means.append(method.search.mean)
        return method

    means: list[np.ndarray] = []
    assert not searched(stop_below=0.0).stopped
    share = float(np.linalg.norm(means[1] - means[0]) / np.linalg.norm(means[0]))
    assert searched(stop_below=1.01 * share).stopped
    assert not searched(stop_below=0.99 * share).stopped


def test_the_four_fittest_of_the_bank_and_zero_begin_the_population_after_a_shift() -> None:
    method, x = ready("pace", built("vit-micro"), **SMALL), images()
    draws = np.random.RandomState(0)
    known = [*(draws.randn(12) * size for size in (0.1, 3, 0.3, 2, 1)), np.zeros(12)]
    method.bank, method.recalls = torch.from_numpy(np.stack(known[:5])), True
    fitness = [method._try(x, point, None).fitness for point in known]
    points = method._points(x)
    assert len(points) == 5
    for point, index in zip(points, np.argsort(fitness)[:4], strict=False):
        assert np.array_equal(point, known[index])
    assert not any(np.array_equal(points[4], point) for point in known)


def test_statistics_of_the_domain_rest_after_the_batch_that_stops_pace() -> None:
    """The shift test comes before the stop test, so the batch that stops the search still enters them."""
    method = ready("pace", built("vit-micro"), **SMALL, stop_below=1e9, tau=1e9)
    stream = [images(seed=seed) for seed in range(3)]
    batches = [channel_statistics(method.model.stem_samples(method.model.stem(x))) for x in stream]
    predict(method, stream[0])
    predict(method, stream[1])
    assert method.stopped
    wanted = 0.8 * batches[0] + 0.2 * batches[1]
    assert torch.allclose(method.monitor.domain, wanted, atol=1e-6)
    predict(method, stream[2])
    assert torch.allclose(method.monitor.domain, wanted, atol=1e-6)


def test_a_stopped_pace_counts_a_broken_batch_and_learns_nothing_from_it() -> None:
    method, x = ready("pace", built("vit-micro"), **SMALL, stop_below=1e9), images()
    for _ in range(2):
        predict(method, x)
    assert method.stopped
    before = method.history.mean.clone()
    predict(method, torch.full_like(x, torch.nan))
    assert method.skipped_updates == 1
    assert torch.equal(method.history.mean, before)


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
