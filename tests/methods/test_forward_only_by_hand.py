"""PEA, FOZO and PACE against small computations of what a step must do, and their released variants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.methods.streams import images, predict, ready, saved
from tta_bench import testing
from tta_bench.api import Model, Source
from tta_bench.plugins import registry
from tta_bench_methods.pace.projection import Fastfood
from tta_bench_methods.pea import block_outputs, rows_of, view
from tta_bench_methods.pea.whitening import gaussian_of

SMALL: dict[str, Any] = {"population": 5, "subspace": 12}


def built(name: str) -> Model:
    return registry.load("models", name)().build()


@pytest.mark.parametrize("name", ["pea", "fozo"])
def test_released_variants_keep_the_contract(name: str) -> None:
    testing.check("methods", name, variant="released")


# -- PEA -------------------------------------------------------------------------------------------


def test_the_second_view_of_pea_is_the_centre_of_nine_tenths() -> None:
    """On a ramp of coordinates from −1 to 1, the enlarged centre has 0.9 of each coordinate."""
    ramp = ((torch.arange(32) + 0.5) / 16 - 1).expand(1, 3, 32, 32)
    assert torch.allclose(view(ramp, 1), 0.9 * ramp, atol=1e-5)
    assert torch.allclose(view(ramp.mT.contiguous(), 1), 0.9 * ramp.mT, atol=1e-5)


@pytest.mark.parametrize(("network", "params"), [("vit-micro", {}), ("resnet-micro", {"group": 32})])
def test_a_fully_aligned_block_has_the_mean_and_covariance_of_the_source(
    network: str, params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, only, found = built(network).double(), 1, list[Tensor]()
    weights = [float(i == only) for i in range(len(model.blocks))]
    monkeypatch.setattr("tta_bench_methods.pea.relative", lambda distances: weights)
    monkeypatch.setattr("tta_bench_methods.pea.with_rows", lambda hidden, rows: found.append(rows) or hidden)
    clean, x = images(16, seed=9).double(), images(24).double()
    method = registry.load("methods", "pea")(**params)
    method.setup(model, Source(clean, 8))
    predict(method, x)
    group = params.get("group", 0)
    wanted = gaussian_of(rows_of(list(block_outputs(model, clean))[only]).detach(), group)
    moved = gaussian_of(found[0], group)
    assert torch.allclose(moved.mean, wanted.mean, atol=1e-6)
    scale = wanted.covariance.abs().max().item()
    assert torch.allclose(moved.covariance, wanted.covariance, rtol=0, atol=1e-3 * scale)


def test_a_saved_state_of_pea_has_the_usual_change_of_every_block() -> None:
    one, two = (ready("pea", built("vit-micro")) for _ in range(2))
    for seed in range(2):
        predict(one, images(seed=seed))
    two.load_state_dict(saved(one.state_dict()))
    changes = [running and running.drift for running in one.stream]
    assert [running and running.drift for running in two.stream] == changes
    assert any(changes)


# -- FOZO ------------------------------------------------------------------------------------------


def test_fozo_averages_its_estimate_over_directions() -> None:
    method, x = ready("fozo", built("vit-micro"), pairs=2), images()
    start, rng, estimates = method.prompt.clone(), torch.Generator(), []
    rng.set_state(method.rng.get_state())
    for _ in range(2):
        z = torch.randn(start.shape, generator=rng)
        up, down = (method._try(x, start + sign * 0.5 * z, None).fitness for sign in (1, -1))
        estimates.append((up - down) * z)
    predict(method, x)
    assert torch.allclose(method.prompt, start - 0.156 * sum(estimates) / 2, rtol=1e-3, atol=1e-3)


def test_the_schedule_of_fozo_ends_at_its_least_step_and_at_a_third() -> None:
    method = ready("fozo", built("vit-micro"))
    for step in range(40):
        method._adjust_(100.0 - step)
    assert method.epsilon == 0.2
    assert method.eta == pytest.approx(1 / 3, abs=1e-5)


# -- PACE ------------------------------------------------------------------------------------------


def test_the_random_map_of_pace_by_hand() -> None:
    """Signs B, Hadamard, permutation, signs G, Hadamard; √(N/D)/N makes both transforms keep norms."""
    project = Fastfood(5, 11, torch.Generator().manual_seed(3), torch.device("cpu"))
    hadamard = torch.ones(1, 1)
    for _ in range(4):
        hadamard = torch.kron(torch.tensor([[1.0, 1.0], [1.0, -1.0]]), hadamard)
    first, second = (torch.diag(signs) for signs in project.signs)
    permutation = torch.eye(16)[project.order]
    matrix = (hadamard @ second @ permutation @ hadamard @ first)[:11, :5] * (16 / 11) ** 0.5 / 16
    v = torch.randn(5, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(project(v), matrix @ v, atol=1e-5)
    assert {-1.0, 1.0} == set(project.signs[0].tolist()) == set(project.signs[1].tolist())


def test_a_shift_stores_the_mean_of_the_search_and_starts_everything_anew() -> None:
    bright, dark = images(seed=1), images(seed=2) * 0.05
    method, unaware = (ready("pace", built("vit-micro"), **SMALL, stop_below=0, tau=t) for t in (0.03, None))
    for x in (bright, dark):
        predict(method, x)
        predict(unaware, x)
    assert method.counters() == {"detected_shifts": 1, "stored_vectors": 1}
    assert np.array_equal(method.bank[0].numpy(), unaware.search.mean)
    assert not np.array_equal(unaware.search.mean, unaware.incumbent)
    assert method.history.mean is None
    assert unaware.history.mean is not None
    assert not method.search.mean.any()
    assert not method.incumbent.any()


def test_smaller_batches_are_no_new_domain_for_pace() -> None:
    method = ready("pace", built("vit-micro"), **SMALL, stop_below=0)
    predict(method, images(12, seed=1))
    known = method.monitor.domain.clone()
    predict(method, images(11, seed=2) * 0.05)
    assert method.shifts == 0
    assert torch.equal(method.monitor.domain, known)


def test_a_stopped_pace_predicts_with_the_mean_of_the_search() -> None:
    method, x = ready("pace", built("vit-micro"), **SMALL, stop_below=1e9), images()
    for _ in range(2):
        predict(method, x)
    assert method.stopped
    offset = method.history.offset()
    wanted, best = (method._try(x, point, offset).logits for point in (method.search.mean, method.incumbent))
    assert torch.equal(predict(method, x), wanted)
    assert not torch.allclose(wanted, best, atol=1e-4)


def test_the_bank_of_pace_is_filled_for_byte_counts() -> None:
    method = ready("pace", built("vit-micro"), **SMALL, bank_size=7)
    method.fill()
    assert method.bank.shape == (7, 12)
    assert method.bank.dtype == torch.float64
    predict(method, images())
