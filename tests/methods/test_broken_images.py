"""Images that are not finite: what is skipped is counted, and later images lose nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.methods.streams import images, predict, ready
from tta_bench.api import Model, Source
from tta_bench.errors import Unsupported
from tta_bench.plugins import registry


def built(name: str) -> Model:
    return registry.load("models", name)().build()


def broken(x: Tensor, *places: int) -> Tensor:
    x = x.clone()
    x[list(places)] = torch.nan
    return x


@pytest.mark.parametrize("filtered", [True, False])
def test_a_broken_image_costs_its_neighbour_in_cofa_only_the_average(filtered: bool) -> None:
    model = built("vit-micro")
    method = ready("cofa", model, filter=filtered)
    with torch.no_grad():
        z = model.features(images(4))
        z[1] = torch.nan
        output = method.step(z)
        alone = model.head(z).softmax(1)
    assert output[[0, 2, 3]].isfinite().all()
    assert torch.equal(output[2], alone[2])
    assert method.skipped_updates == 1
    assert method.last is None


@pytest.mark.parametrize(("name", "learn"), [("iabn", "_learn_"), ("note", "learn")])
def test_after_a_broken_part_the_memory_is_still_due(
    name: str, learn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before: with the count two short, parts of four images ended beyond every multiple of four."""
    method = ready(name, built("resnet-micro"), capacity=4)
    due: list[int] = []
    monkeypatch.setattr(method, learn, lambda: due.append(method.images.arrived))
    predict(method, images(2))
    output = predict(method, broken(images(10, seed=1), 0))
    assert len(output) == 10
    assert method.skipped_updates == 1
    assert due == [4, 8]


def test_note_counts_statistics_that_are_not_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tta_bench_methods.continual.note.remember_", lambda layers: False)
    method = ready("note", built("resnet-micro"), capacity=4)
    predict(method, images(4))
    assert method.skipped_reasons == {"the statistics of the memory were not finite": 1}


def test_delta_counts_statistics_that_are_not_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    method = ready("delta", built("resnet-micro"))
    before = method.frequencies.clone()
    monkeypatch.setattr("tta_bench_methods.continual.delta.remember_", lambda layers: False)
    predict(method, images())
    assert method.skipped_reasons == {"the statistics of a batch were not finite": 1}
    assert torch.equal(method.frequencies, before)


def test_pea_learns_nothing_from_logits_that_are_not_finite() -> None:
    method = ready("pea", built("vit-micro"))
    predict(method, images())
    usual, stream = method.mean_entropy, list(method.stream)
    with torch.no_grad():
        method.model.classifier.bias[0] = torch.nan
        predict(method, images(seed=1))
        method.model.classifier.bias[0] = 0.0
    assert method.skipped_updates == 1
    assert method.mean_entropy == usual
    assert method.stream == stream
    predict(method, images(seed=2))
    assert 0 < method.mean_entropy < 10


# -- too few images ----------------------------------------------------------------------------------


def test_actmad_refuses_one_clean_image_and_joins_single_ones() -> None:
    method: Any = registry.load("methods", "actmad")()
    with pytest.raises(Unsupported, match="needs clean images"):
        method.setup(built("vit-micro"), Source(images(1), 8))
    method.setup(built("vit-micro"), Source(images(6), 1))
    assert all(target.isfinite().all() for target in method.targets)


@pytest.mark.parametrize(
    ("network", "params", "least"),
    [
        ("vit-micro", {"variant": "released"}, 2),
        ("vit-micro", {"variant": "released", "views": 3}, 1),
        ("vit-micro", {}, 1),
        ("resnet-micro", {"variant": "released"}, 1),
    ],
)
def test_released_pea_refuses_single_images_where_it_compares_class_tokens(
    network: str, params: dict[str, Any], least: int
) -> None:
    model = built(network)
    asked = registry.load("methods", "pea")(**params)
    assert asked.unsupported(model) is None
    told = asked.refuses_batch(1)
    assert (told or "").endswith("they have 1: one class token has no variance" if least > 1 else "")
    assert (told is None) == (least == 1)
    method = ready("pea", model, **params)
    for seed in range(2):
        predict(method, images(least, seed))
    assert not method.skipped_updates
    assert any(method.stream)
    predict(method, images(1, seed=3))
    assert method.skipped_updates == (least > 1)
