"""`predict`: the answer of a step without the step."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.methods.streams import assert_same, images, predict, ready
from tta_bench.api import Method
from tta_bench.plugins import registry

EVERY_IMAGE: dict[str, Any] = {"lr": 0.05, "margin": 2.0, "redundancy": 2.0}  # is learnt from
ONE_PASS: dict[str, dict[str, Any]] = {
    "tent": {"lr": 0.05},
    "eta": EVERY_IMAGE,
    "eata": EVERY_IMAGE,
    "rdumb": EVERY_IMAGE | {"reset_every": 3},
    "deyo": {"lr": 0.05, "margin": 2.0, "plpd_above": -1.0},
    "santa": {},
    "delta": {},
    "actmad": {},
    "roid": {},
    "cmf": {},
    "rotta": {"capacity": 8},
    "petta": {"capacity": 8},
}
STREAM = [images(8, seed=seed) for seed in range(4)]


def methods(name: str, network: str) -> list[Any]:
    """Two equal methods, which have adapted to two batches; none where the method is unsupported."""
    model, params = registry.load("models", network)().build(), ONE_PASS[name]
    if registry.load("methods", name)(**params).unsupported(model):
        return []
    both = [ready(name, copy.deepcopy(model), **params) for _ in range(2)]
    for method in both:
        for x in STREAM[:2]:
            predict(method, x)
    return both


def answer(method: Method, x: Tensor) -> Tensor:
    with torch.no_grad():
        return method.predict(x)


@pytest.mark.parametrize("network", ["vit-micro", "resnet-micro"])
@pytest.mark.parametrize("name", ONE_PASS)
def test_a_prediction_is_the_answer_of_a_step_and_costs_one_pass(name: str, network: str) -> None:
    """Before every step: RDumb returns to the source after the third, and its next answer is the source's."""
    both = methods(name, network)
    if not both:
        return  # has a reason, which other tests read
    method, other = both
    for x in STREAM:
        for batch in (x, x[:1]):  # some do not learn from one image
            before, counted = method.state_dict(), copy.copy(method.model.passes)
            found = answer(method, batch)
            assert method.model.passes.forward_images - counted.forward_images == len(batch)
            assert method.model.passes.backward_images == counted.backward_images
            assert not found.requires_grad
            assert_same(before, method.state_dict())
            with torch.no_grad():
                wanted = Method.predict(other, batch)  # takes a step and restores the state
            assert torch.equal(found, wanted)
        assert torch.equal(answer(method, x), predict(method, x))
        predict(other, x)


def test_roid_in_a_window_answers_as_a_step_would_and_skips_nothing() -> None:
    """On a network with BatchNorm the whole window is predicted, and its last image is answered."""
    method, _ = methods("roid", "resnet-micro")
    window = torch.cat([STREAM[2][:5], STREAM[0][5:]])
    found = answer(method, window)
    assert torch.equal(found, predict(method, window))
    assert torch.equal(answer(method, window[:1]), predict(method, window[:1]))
    assert method.skipped_updates == 1, "the step of one image, not its prediction"
