"""A method that declares its passes as text, as methods did before `passes()`."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tta_bench.api import Method


@dataclass
class BadCost(Method):
    """Predicts, and says that it takes K passes."""

    cost = "K/0"

    def step(self, x: Tensor) -> Tensor:
        return self.model(x)

    def reset(self) -> None:
        pass
