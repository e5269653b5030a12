"""FOA (Niu et al., ICML 2024; docs/methods.md) on the embedded networks, whatever their weights."""

from __future__ import annotations

import copy
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.conftest import SMALL
from tests.methods.streams import assert_same, random_images, saved
from tta_bench.api import ModelSource, Source, Target
from tta_bench.config import load
from tta_bench.grid import expand
from tta_bench.models.micro import ResNetMicro, VimMicro, VitMicro
from tta_bench_methods._shared.alignment import SourceStatistics, objective
from tta_bench_methods._shared.cma_search import CMAAdaptSigmaCSA, CMAEvolutionStrategy, CmaSearch
from tta_bench_methods.foa import Foa
from tta_bench_methods.shift import Shift

MICRO = [VitMicro, ResNetMicro, VimMicro]
BATCH = 4


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def images(seed: int, count: int = BATCH, contrast: float = 1.0) -> Tensor:
    return random_images(seed, count, contrast)


def stream(batches: int) -> list[Tensor]:
    return [images(i, contrast=0.6) for i in range(batches)]


def ready(network: type[ModelSource] = VitMicro, **fields: Any) -> Foa:
    method = Foa(**{"k": 3, "prompts": 1, **fields})
    method.setup(network().build(), Source(images(1000, 16), 16))
    return method


# -- the search ------------------------------------------------------------------------------------


def sphere(points: list[np.ndarray]) -> list[float]:
    return [float(((x - 0.3) ** 2).sum()) for x in points]


@pytest.mark.parametrize("population", [2, 5])
def test_the_search_is_pycma_with_a_generator_of_its_own(population: int) -> None:
    state = np.random.get_state()
    mine = CmaSearch(np.zeros(40), 1.0, population, seed=2020)
    found = []
    for _ in range(12):
        points = mine.ask()
        found.append(np.array(points))
        mine.tell(points, sphere(points))
    np.testing.assert_equal(np.random.get_state(), state)
    options = {"popsize": population, "seed": 2020, "AdaptSigma": CMAAdaptSigmaCSA, "verbose": -10}
    theirs = CMAEvolutionStrategy(np.zeros(40), 1.0, options)  # draws from the global generator
    for expected in found:
        points = theirs.ask()
        assert np.array_equal(points, expected)
        theirs.tell(points, sphere(points))
    np.random.set_state(state)


def test_step_size_control_is_csa_where_pycma_would_choose_another() -> None:
    method = ready(prompts=5, k=2)  # 320 dimensions
    for x in stream(2):
        method.step(x)
    assert method.search is not None
    assert type(method.search.strategy.adapt_sigma) is CMAAdaptSigmaCSA


@pytest.mark.parametrize("k", [2, 6])
@pytest.mark.parametrize("network", [VitMicro, ResNetMicro])
def test_a_cut_stream_goes_on_bit_for_bit(network: type[ModelSource], k: int) -> None:
    batches, cuts = stream(14), (1, 6, 11)
    whole, snapshots, outputs = ready(network, k=k), {}, []
    for i, x in enumerate(batches):
        if i in cuts:
            snapshots[i] = (whole.state_dict(), saved(whole.state_dict()))
        outputs.append(whole.step(x))
    if whole.model.tokens:  # few enough dimensions to decompose the covariance now and then
        assert whole.state_dict()["search"]["counters"]["count_eigen"] > 1
    for cut, (in_memory, on_disk) in snapshots.items():
        assert_same(in_memory, on_disk)  # later steps did not reach into it
        other = ready(network, k=k)
        other.load_state_dict(on_disk)
        for x, output in zip(batches[cut:], outputs[cut:], strict=True):
            assert torch.equal(other.step(x), output)
        assert_same(other.state_dict(), whole.state_dict())


CONTINUE = """
import sys, torch
from tests.methods.test_foa import ready, stream
method = ready(k=6)
method.load_state_dict(torch.load(sys.argv[1], weights_only=True))
torch.set_num_threads(1)
torch.save([method.step(x) for x in stream(13)[5:]], sys.argv[2])
"""


@pytest.mark.slow
def test_a_cut_stream_goes_on_in_another_process(tmp_path: Path) -> None:
    method = ready(k=6)
    for x in stream(13)[:5]:
        method.step(x)
    torch.save(method.state_dict(), tmp_path / "state.pt")
    files = [str(tmp_path / "state.pt"), str(tmp_path / "outputs.pt")]
    where = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", CONTINUE, *files], check=True, cwd=where, timeout=120)
    for x, output in zip(stream(13)[5:], torch.load(files[1], weights_only=True), strict=True):
        assert torch.equal(method.step(x), output)


# -- the fitness -----------------------------------------------------------------------------------


def test_fitness_by_hand() -> None:
    layers = [torch.tensor([[0.0, 2.0], [2.0, 6.0]]), torch.tensor([[1.0], [3.0]])]
    statistics = SourceStatistics(
        [torch.tensor([0.0, 4.0]), torch.tensor([2.0])], [torch.zeros(2), torch.zeros(1)]
    )
    gaps = statistics.gaps(layers)  # unbiased: σ² = 2, 8 and 2; μ = 1, 4 and 2
    assert torch.allclose(torch.cat(gaps), torch.tensor([3.0, 8.0, 2.0]).double())
    logits = torch.zeros(2, 10)
    entropy = torch.tensor(10.0).double().log()
    total = objective(logits, gaps, 0.4, "sum")
    assert torch.allclose(total, 2 * entropy + 0.4 * 2 / 64 * 13)
    mean = objective(logits, gaps, 0.4, "mean")
    assert torch.allclose(mean, entropy + 0.4 * (5.5 + 2) / 2)
    assert torch.allclose(objective(logits, gaps, 0.0, "sum"), 2 * entropy)


def test_the_best_is_no_worse_than_the_incumbent(monkeypatch: pytest.MonkeyPatch) -> None:
    method = ready(k=6)
    seen: list[Any] = []
    attempt = method._try

    def watched(*args: Any) -> Any:
        seen.append(attempt(*args))
        return seen[-1]

    monkeypatch.setattr(method, "_try", watched)
    for x in stream(4):
        seen.clear()
        output = method.step(x)
        best = min(trial.fitness for trial in seen)
        assert len(seen) == 6
        assert best <= seen[-1].fitness
        assert next(t.logits for t in seen if t.fitness == best) is output


# -- the whole step --------------------------------------------------------------------------------


@pytest.mark.parametrize("network", MICRO)
@pytest.mark.parametrize("k", [2, 5])
def test_passes_and_no_graph(network: type[ModelSource], k: int) -> None:
    method = ready(network, k=k)
    method.model.requires_grad_(True)
    before = method.model.passes.forward_images
    with torch.enable_grad():
        outputs = [method.step(x) for x in stream(2)]
    assert method.model.passes.forward_images - before == 2 * k * BATCH
    assert not any(output.requires_grad for output in outputs)
    assert method.passes() == (k, 0)


@pytest.mark.parametrize("network", [VitMicro, VimMicro])
def test_without_prompts_it_is_activation_shifting(network: type[ModelSource]) -> None:
    method, baseline, model = ready(network, prompts=0), Shift(), network().build()
    baseline.setup(model, Source(images(1000, 16), 16))
    for x in stream(3):
        assert torch.equal(method.step(x), baseline.step(model.features(x)))


@pytest.mark.parametrize("fields", [{}, {"interval": BATCH}])
def test_without_prompts_and_shifting_it_is_the_source_model(fields: dict[str, Any]) -> None:
    method, model = ready(VitMicro, prompts=0, shift=False, **fields), VitMicro().build()
    for x in stream(3):
        assert torch.equal(method.step(x), model(x))


@pytest.mark.parametrize("network", [VitMicro, VimMicro])
def test_a_token_of_zeros_is_not_no_token(network: type[ModelSource]) -> None:
    method, x = ready(network), images(0)
    method.incumbent = np.zeros_like(method.incumbent)
    assert not torch.allclose(method._predict(x), method.model(x), atol=1e-4)


def test_a_kernel_of_zeros_is_bn_adapt() -> None:
    method, model, x = ready(ResNetMicro), ResNetMicro().build(), images(0)
    model.use_batch_statistics()  # all that BN-Adapt does
    method.incumbent = np.zeros_like(method.incumbent)
    assert torch.equal(method._predict(x), model(x))


def test_the_search_starts_at_zero_or_at_the_kernel() -> None:
    tokens, pixels = ready(VitMicro, prompts=3), ready(ResNetMicro)
    assert tokens.search is not None
    assert pixels.search is not None
    assert not tokens.search.strategy.mean.any()
    assert tokens.incumbent.shape == (3 * 64,)
    assert tokens.incumbent.any()
    assert np.array_equal(pixels.search.strategy.mean, pixels.incumbent)
    assert pixels.incumbent.shape == (441,)


def test_the_first_batch_is_not_shifted_and_the_history_is_over_candidates() -> None:
    method = ready(k=3)
    x = images(0)
    points = [*ready(k=3).search.ask(), method.incumbent.copy()]  # type: ignore[union-attr]
    means = [method._pass(x, point)[1].mean(0) for point in points]
    output = method.step(x)
    assert any(torch.equal(output, method.model.head(method._pass(x, p)[1])) for p in points)
    assert torch.allclose(method.history.mean.float(), torch.stack(means).mean(0), atol=1e-6)


@pytest.mark.parametrize("network", MICRO)
def test_reset_replays_and_nothing_else_moves(network: type[ModelSource]) -> None:
    random = np.random.get_state()
    method = ready(network)
    before = copy.deepcopy(method.model.net.state_dict())
    first = [method.step(x) for x in stream(3)]
    method.reset()
    for x, output in zip(stream(3), first, strict=True):
        assert torch.equal(method.step(x), output)
    assert_same(dict(method.model.net.state_dict()), dict(before))
    np.testing.assert_equal(np.random.get_state(), random)


def test_rows_of_a_batch_keep_to_themselves() -> None:
    x, order = images(0), torch.tensor([2, 0, 3, 1])
    assert torch.allclose(ready().step(x)[order], ready().step(x[order]), atol=1e-5)


@pytest.mark.parametrize("network", MICRO)
def test_a_batch_of_one_is_predicted_and_not_learnt_from(network: type[ModelSource]) -> None:
    method = ready(network)
    method.step(images(0))
    before = copy.deepcopy(method.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert method.step(images(1, count=1)).isfinite().all()
    assert_same(before, method.state_dict())


def test_what_is_not_finite_leaves_no_trace() -> None:
    method = ready()
    method.step(images(0))
    before, bad = copy.deepcopy(method.state_dict()), images(1)
    bad[0] = float("inf")
    assert method.step(bad).shape == (BATCH, 10)
    assert method.skipped_updates == 1
    after = method.state_dict()
    assert_same(before["incumbent"], after["incumbent"])
    assert_same(before["mean"], after["mean"])
    assert_same(before["search"]["mean"], after["search"]["mean"])
    assert method.step(images(2)).isfinite().all()
    other = ready()
    other.load_state_dict(saved(method.state_dict()))
    assert torch.equal(other.step(images(3)), method.step(images(3)))


# -- intervals and variants ------------------------------------------------------------------------


def test_an_interval_learns_what_a_batch_of_its_size_would_have_learnt() -> None:
    single, batch = ready(interval=4), ready()
    x, plain = images(0), ready()
    for image in x.split(1):
        assert torch.equal(single.step(image), plain._predict(image))
    batch.step(x)
    assert not single.waiting
    assert_same(single.state_dict(), batch.state_dict())
    assert single.passes() == (4, 0)


def test_deferred_predictions_are_those_of_a_batch_of_the_interval(write_yaml: Callable[..., Path]) -> None:
    when = ("deferred", "immediate")
    methods = [{"use": "foa", "name": how, "interval": 8, "predictions": how} for how in when]
    small = SMALL["stream"] | {"batch_size": 2}
    path = write_yaml(models=["vit-micro"], quantizers=["fp32"], methods=methods, stream=small)
    deferred, immediate = expand(load(path))
    assert (deferred.batch_size, immediate.batch_size) == (8, 2)
    whole, waiting = ready(), ready(interval=8, predictions="deferred")
    for x in images(0, 24).split(deferred.batch_size):
        assert torch.equal(whole.step(x), waiting.step(x))


def test_deferred_predictions_of_larger_batches_are_made_in_pieces_of_the_interval() -> None:
    """13 images with I = 6: pieces of 6, 6 and 1, of which the last is too small to learn from."""
    small, deferred = ready(), ready(interval=6, predictions="deferred")
    x = images(0, 13)
    assert torch.equal(deferred.step(x), torch.cat([small.step(part) for part in x.split(6)]))
    assert_same(small.state_dict(), deferred.state_dict())
    assert deferred.skipped_updates == 1


def test_an_interval_can_be_cut() -> None:
    singles = [image for x in stream(3) for image in x.split(1)]
    whole, first, second = (ready(interval=4) for _ in range(3))
    outputs = [whole.step(x) for x in singles]
    for x in singles[:6]:
        first.step(x)
    second.load_state_dict(saved(first.state_dict()))
    assert len(second.waiting) == 2
    for x, output in zip(singles[6:], outputs[6:], strict=True):
        assert torch.equal(second.step(x), output)


@pytest.mark.parametrize("network", MICRO)
def test_released_differs_on_feature_maps_only(network: type[ModelSource]) -> None:
    released, corrected = ready(network, variant="released"), ready(network)
    same = torch.equal(released.source_statistics.means[0], corrected.source_statistics.means[0])
    assert same == released.model.tokens
    assert len(released.target) == (len(corrected.target) if same else 1)
    assert released.step(images(0)).shape == (BATCH, 10)


def test_presets() -> None:
    assert Foa.presets(Target("any", "resnet", "W8A8")) == {"fitness": "mean"}
    assert Foa.presets(Target("any", "vit", "W8A8")) == {}


@pytest.mark.parametrize("wrong", [{"k": 1}, {"prompts": -1}, {"interval": 1}])
def test_impossible_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        Foa(**wrong)
