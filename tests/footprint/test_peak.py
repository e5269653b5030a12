"""Counting live bytes, and what fake tensors are taken for."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest
import torch

from tta_bench.api import Model, Source
from tta_bench.footprint.fake_tensors import fake_tensors
from tta_bench.footprint.peak import BLOCK_BYTES, ByteCounter
from tta_bench.footprint.skeleton import fake_, skeleton
from tta_bench.plugins import registry
from tta_bench_methods.tent import Tent

World = Callable[[], AbstractContextManager[Any]]
worlds = pytest.mark.parametrize("world", [nullcontext, fake_tensors], ids=["real", "fake"])


# Counting -------------------------------------------------------------------------------------------


@worlds
def test_storages_count_in_blocks_until_they_are_freed(world: World) -> None:
    with world(), ByteCounter() as counter:
        small, large = torch.zeros(1), torch.zeros(129)  # 4 and 516 bytes: one block and two
        assert counter.live_bytes == 3 * BLOCK_BYTES
        del small
        assert counter.live_bytes == 2 * BLOCK_BYTES
        del large
    assert counter.live_bytes == 0
    assert counter.peak_bytes == 3 * BLOCK_BYTES


@worlds
def test_views_and_in_place_operations_are_free(world: World) -> None:
    with world(), ByteCounter() as counter:
        x = torch.zeros(64, 64)
        view = x.t()[3:].detach().unsqueeze(0)
        x.add_(1).mul_(2)
        torch.exp(x, out=x)
        assert counter.peak_bytes == 64 * 64 * 4
        del x
        assert counter.live_bytes == 64 * 64 * 4  # the view holds it
        del view
    assert counter.live_bytes == 0


@worlds
def test_a_storage_made_outside_counts_when_first_used(world: World) -> None:
    outside = torch.ones(1024)
    with world(), ByteCounter() as counter:
        total = outside.sum()
        assert counter.live_bytes == 4096 + BLOCK_BYTES
        assert counter.sizes_except([outside]) == [total.untyped_storage().nbytes()] == [4]


# What fake tensors are taken for --------------------------------------------------------------------


def test_conventions() -> None:
    with fake_tensors():
        x, rows = torch.rand(4), torch.rand(4, 3, 5)
        mask = x > 0.5
        assert x[mask].shape == x.masked_select(mask).shape == x.nonzero()[:, 0].shape == (4,)
        assert rows[rows[:, :, 0] > 0].shape == (12, 5)
        assert rows[:, torch.ones(3, dtype=torch.bool)].shape == rows.shape
        assert bool(x.isfinite().all())
        assert not x.isnan().any()
        assert not (~mask).any()
        assert mask.sum().item() == 4
        assert bool(mask.sum() == 0) is False
        assert x.sum().item() == 1.0
        assert int(x.argmax()) == 1
        assert x.tolist() == [1.0] * 4
        assert torch.equal(x, x)
        assert (rows.numpy() == np.ones((4, 3, 5), np.float32)).all()
        assert np.asarray(mask).dtype == bool
        assert torch.bincount(rows[0, 0].long(), minlength=9).shape == (9,)


def test_a_known_value_is_not_guessed() -> None:
    with fake_tensors():
        assert torch.tensor(3.5).item() == 3.5


def test_generator_states_stay_real() -> None:
    rng = torch.Generator().manual_seed(7)
    with fake_tensors():
        rng.set_state(copy.deepcopy(rng.get_state()))
        assert torch.rand(3, generator=rng).shape == (3,)


# Real and fake agree --------------------------------------------------------------------------------


def _peaks(model: Model, counter: ByteCounter) -> list[int]:
    """Peaks of two steps of TENT: forward, backward and optimizer."""
    method, x, found = Tent(), torch.rand(4, 3, 32, 32), []
    method.setup(model, Source(x))
    for _ in range(2):
        counter.restart()
        method.step(x)
        found.append(counter.peak_bytes)
    return found


@pytest.mark.parametrize("name", ["vit-micro", "resnet-micro", "vim-micro"])
def test_fake_peaks_are_real_peaks(name: str) -> None:
    source = registry.load("models", name)()
    with ByteCounter() as counter, torch.no_grad():
        real = _peaks(source.skeleton(), counter)
    model = skeleton(source)
    with fake_tensors(), ByteCounter() as counter, torch.no_grad():
        fake_(model)
        assert _peaks(model, counter) == real
