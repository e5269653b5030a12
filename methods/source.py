"""No adaptation: the source model as it is."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tta_bench.api import Method


@dataclass
class NoAdaptation(Method):
    """Predict with the source model, the baseline of every table."""

    consumes = "features"
    memory = "none"
    summary = "the source model, unadapted"

    def step(self, z: Tensor) -> Tensor:
        return self.model.head(z)

    def reset(self) -> None:
        pass
