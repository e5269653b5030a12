"""Random images, methods that are ready for them, and comparisons of saved states."""

from __future__ import annotations

import io
from typing import Any

import torch
from torch import Tensor

from tta_bench.api import Method, Model, Source
from tta_bench.plugins import registry


def random_images(seed: int, count: int, contrast: float = 1.0) -> Tensor:
    """Uniform noise around grey."""
    rng = torch.Generator().manual_seed(seed)
    return (torch.rand(count, 3, 32, 32, generator=rng) - 0.5) * contrast + 0.5


def saved(state: dict[str, Any]) -> dict[str, Any]:
    """The state after it was written to disk and read."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def assert_same(a: Any, b: Any) -> None:
    """Assert that nested states are equal bit for bit."""
    if isinstance(a, Tensor):
        assert torch.equal(a, b)
    elif isinstance(a, dict):
        assert a.keys() == b.keys()
        assert_same(list(a.values()), list(b.values()))
    elif isinstance(a, list | tuple):
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    else:
        assert a == b


def images(count: int = 12, seed: int = 0) -> Tensor:
    """Uniform noise."""
    return torch.rand(count, 3, 32, 32, generator=torch.Generator().manual_seed(seed))


def ready(name: str, model: Model, **params: Any) -> Any:
    """A method after `setup` on this model."""
    method: Method = registry.load("methods", name)(**params)
    if method.consumes == "features" and method.batch_statistics(model):
        model.use_batch_statistics()
    with torch.no_grad():
        method.setup(model, Source(images(16, seed=9), 8))
    return method


def predict(method: Method, x: Tensor) -> Tensor:
    """The output of one step, called as the harness calls it."""
    with torch.no_grad():
        return method.step(method.model.features(x) if method.consumes == "features" else x)


def plain(model: Model, x: Tensor) -> Tensor:
    """The logits of a model without a method."""
    with torch.no_grad():
        return model(x)
