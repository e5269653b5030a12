"""What must hold of methods on streams, whatever the scenario: rates, borders, orders and sorted classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tta_bench import config, grid
from tta_bench.execution.cell.adaptation import Adaptation, can_predict
from tta_bench.execution.executor import Executor
from tta_bench.execution.messages import Start
from tta_bench.planning.sharing import resolve
from tta_bench.plugins import registry
from tta_bench.storage.record import Record
from tta_bench.testing.bench import Bench

SORTED = {"use": "correlated", "sampler": "sorted"}

pytestmark = pytest.mark.usefixtures("no_bytes")


@pytest.fixture
def accuracy(write_yaml: Callable[..., Path]) -> Callable[..., dict[str, float]]:
    """Accuracy of a method on resnet-micro by domain, on a stream of 160 images for each."""

    def measured(method: str, **stream: Any) -> dict[str, float]:
        found = records(write_yaml, method, {"limit": 160, "batch_size": 16} | stream)
        return {each["corruption"]: each["correct"] / each["images"] for each in found}

    return measured


def records(write_yaml: Callable[..., Path], method: str, stream: dict[str, Any]) -> list[Record]:
    file = write_yaml(
        models=["resnet-micro"],
        quantizers=["fp32"],
        methods=[method],
        stream={"corruptions": ["clean", "fog"], "severity": 5, "rounds": 1} | stream,
    )
    (cell,) = grid.expand(config.load(file))
    deliveries = Executor().run([resolve(cell)], [Start(described=True)])
    found = [record for delivery in deliveries for record in delivery.records]
    assert all(each["status"] == "ok" for each in found), found[0].get("reason")
    return found


Accuracy = Callable[..., dict[str, float]]


def test_batch_statistics_fail_on_sorted_classes(accuracy: Accuracy) -> None:
    source, shuffled = accuracy("source"), accuracy("bn-adapt")
    found = accuracy("bn-adapt", scenario=SORTED)
    for domain in source:
        assert found[domain] < source[domain] / 2, "a batch of one class has other statistics"
    assert shuffled["fog"] > source["fog"] + 0.1


@pytest.mark.parametrize("method", ["lame", "cofa", "prior-correction"])
def test_methods_that_estimate_the_labels_of_a_batch_gain_on_sorted_classes(
    method: str, accuracy: Accuracy
) -> None:
    source, found = accuracy("source"), accuracy(method, scenario=SORTED)
    shuffled = accuracy(method)
    for domain in source:
        assert found[domain] > max(source[domain], shuffled[domain])


def test_batch_statistics_ignore_the_order_of_domains(accuracy: Accuracy) -> None:
    forward = accuracy("bn-adapt", corruptions=["clean", "fog"])
    assert accuracy("bn-adapt", corruptions=["fog", "clean"]) == forward


@pytest.mark.parametrize("name", registry.names("methods"))
def test_a_method_that_adapts_once_answers_each_batch_alone(name: str) -> None:
    """With a rate of one batch in a million, the answer to a batch does not depend on those before it."""
    model = registry.load("models", "resnet-micro")().build()
    plugin = registry.load("methods", name)
    make = lambda: plugin(**plugin.presets(model.target()))  # noqa: E731
    if (method := make()).unsupported(model) is not None or not can_predict(method):
        pytest.skip("it does not run on this model, or cannot predict without adapting")
    bench = Bench(make, model)
    method = bench.ready()
    cell: Any = SimpleNamespace(reset="never", reset_every=None, adapt_every=10**6, window=1)
    adaptation = Adaptation(cell, method)
    adaptation.begin(0, 0)
    first, second, third = bench.images
    torch.manual_seed(1)
    with torch.no_grad():
        _, before, _, after = (
            adaptation.output(bench.given(method, x)) for x in (first, second, third, second)
        )
    assert torch.equal(before, after)


@pytest.mark.parametrize("name", registry.names("methods"))
def test_episodes_in_reverse_give_the_answers_in_reverse(name: str) -> None:
    model = registry.load("models", "resnet-micro")().build()
    plugin = registry.load("methods", name)
    make = lambda: plugin(**plugin.presets(model.target()))  # noqa: E731
    if make().unsupported(model) is not None:
        pytest.skip("it does not run on this model")
    bench = Bench(make, model)
    method = bench.ready()
    cell: Any = SimpleNamespace(reset="batch", reset_every=1, adapt_every=1, window=1)
    adaptation = Adaptation(cell, method)

    def answers(images: Sequence[Any]) -> list[torch.Tensor]:
        adaptation.begin(0, 0)
        with torch.no_grad():
            return [adaptation.output(bench.given(method, x)).clone() for x in images]

    forward, backward = answers(bench.images), answers(bench.images[::-1])
    assert all(torch.equal(a, b) for a, b in zip(forward, reversed(backward), strict=True))


@pytest.mark.parametrize("scenario", registry.names("streams"))
def test_borders_do_not_matter_where_batches_end_at_them(
    scenario: str, write_yaml: Callable[..., Path]
) -> None:
    plugin = registry.load("streams", scenario)
    if plugin.resamples:
        pytest.skip("the number of its images is not that of the domain")
    stream = {"limit": 16, "batch_size": 8, "scenario": scenario}
    kept = ("corruption", "severity", "visit", "images", "correct", "ece")
    cut, joined = (
        [[each.get(name) for name in kept] for each in records(write_yaml, "tent", stream | changes)]
        for changes in ({}, {"straddle": True})
    )
    assert sorted(joined, key=str) == sorted(cut, key=str)
