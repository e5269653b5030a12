"""A stream cut anywhere and continued in another process gives the predictions of the whole one."""

from __future__ import annotations

import io
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tta_bench.api import Domain, Method, Source, Target
from tta_bench.data.cifar10.mini import Cifar10Mini
from tta_bench.execution.cell.cell_run import seed_everything
from tta_bench.plugins import registry

DOMAINS = [Domain("gaussian_noise", 5), Domain("contrast", 5), Domain("fog", 5)]
BATCHES, SIZE = 3, 6  # a domain
CUTS = (2, 3, 7)  # within a domain, between two, and within the last
# Fewer passes, or thresholds that let a short stream reach the code they guard.
QUICK: dict[str, dict[str, Any]] = {
    "cotta": {"views": 2, "augment_below": 1.0, "restore": 0.1},
    "eata": {"fisher_images": 12, "margin": 2.0},
    "eta": {"margin": 2.0},
    "deyo": {"margin": 2.0, "weight_margin": 2.0, "plpd_above": -1.0},
    "sar": {"margin": 2.0},
    "memo": {"views": 3},
    "foa": {"k": 3},
    "zoa": {"bank_size": 2},
}


@dataclass(frozen=True)
class Case:
    """A method on a model."""

    model: str
    method: str
    params: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return "-".join([self.method, self.model, *map(str, self.params.values())])

    def ready(self) -> Method | None:
        """The method, set up on a model of its own; nothing where it does not run."""
        model = registry.load("models", self.model)().build()
        plugin = registry.load("methods", self.method)
        target = Target(self.model, model.family, "FP32")
        method: Method = plugin(**plugin.presets(target) | QUICK.get(self.method, {}) | self.params)
        if method.unsupported(model):
            return None
        if method.consumes == "features" and method.batch_statistics(model):
            model.use_batch_statistics()
        with torch.no_grad():
            method.setup(model, Source(clean_images().clone(), 12))
        return method


@cache
def clean_images() -> Tensor:
    return Cifar10Mini().source_images()[:24]


EXTRA = [
    Case("vit-micro", "foa", {"k": 2}),
    Case("vit-micro", "foa", {"interval": 15}),
    Case("vit-micro", "zoa", {"variant": "released"}),
    Case("vit-micro", "zoa", {"bank_size": 0}),
    Case("vit-micro", "zoa", {"bank_policy": "random", "store": "every", "store_every": 2}),
    Case("resnet-micro", "bn-adapt", {"variant": "cumulative"}),
    Case("resnet-micro", "tent", {"momentum": 0.9}),
]
CASES = [Case(m, name) for m in ("vit-micro", "resnet-micro") for name in registry.names("methods")] + EXTRA


@cache
def batches() -> list[tuple[str, Tensor]]:
    data = Cifar10Mini()
    chosen = np.arange(BATCHES * SIZE).reshape(BATCHES, SIZE)
    return [
        (f"{domain}/{i}", data.test_images(domain, rows))
        for domain in DOMAINS
        for i, rows in enumerate(chosen)
    ]


def predict(method: Method, place: str, x: Tensor) -> np.ndarray:
    seed_everything(place)  # global generators are the harness's affair
    with torch.no_grad():
        given = method.model.features(x) if method.consumes == "features" else x
        return method.step(given.clone()).numpy().copy()


def saved(method: Method) -> bytes:
    file = io.BytesIO()
    torch.save(method.state_dict(), file)
    return file.getvalue()


def rest(case: Case, state: bytes, cut: int) -> list[np.ndarray]:
    """What another process makes of the other batches."""
    torch.set_num_threads(1)
    method = case.ready()
    assert method is not None
    method.load_state_dict(torch.load(io.BytesIO(state), weights_only=True))
    return [predict(method, *batch) for batch in batches()[cut:]]


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Executor]:
    """A process that knows nothing of this one."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield pool


@pytest.mark.parametrize("case", CASES, ids=str)
def test_cut_streams_continue_bit_for_bit(case: Case, elsewhere: Executor) -> None:
    method = case.ready()
    if method is None:
        pytest.skip(f"{case.method} does not run on {case.model}")
    whole, states = [], {}
    for i, batch in enumerate(batches()):
        if i in CUTS:
            states[i] = saved(method)
        whole.append(predict(method, *batch))
    for cut, state in states.items():
        continued = elsewhere.submit(rest, case, state, cut).result(timeout=120)
        for i, (ours, theirs) in enumerate(zip(continued, whole[cut:], strict=True), cut):
            assert np.array_equal(ours, theirs), f"cut at {cut}: batch {i} differs"


def test_streams_adapt_so_that_a_lost_state_would_show() -> None:
    """A method that starts anew at a cut predicts otherwise, or the test above could not fail."""
    outputs = []
    for start in (0, 6):
        method = Case("vit-micro", "zoa").ready()
        assert method is not None
        outputs.append([predict(method, *batch) for batch in batches()[start:]][-1])
    assert not np.array_equal(*outputs)
