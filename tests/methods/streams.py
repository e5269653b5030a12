"""Random images and comparisons of saved states, for the tests of methods."""

from __future__ import annotations

import io
from typing import Any

import torch
from torch import Tensor


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
