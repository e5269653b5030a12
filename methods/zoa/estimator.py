"""Zeroth-order gradient estimates (Eq. 3 and 5), and AdamW for the logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Distribution = Literal["rsu", "gaussian"]


def draw(count: int, distribution: Distribution, rng: torch.Generator) -> Tensor:
    """A perturbation: random signs times U(0.5, 1) (Rademacher and segmented uniform), or N(0, 1)."""
    if distribution == "gaussian":
        return torch.randn(count, generator=rng)
    magnitude = torch.rand(count, generator=rng) / 2 + 0.5
    return magnitude.copysign(torch.rand(count, generator=rng) - 0.5)


def slope(rise: float, c: float, e: Tensor, distribution: Distribution) -> Tensor:
    """The gradient estimate from one difference of losses, (𝓛′ − 𝓛)/c · e⁻¹.

    The elementwise inverse of a Gaussian e has no mean, so for it the estimate is (𝓛′ − 𝓛)/c · e.
    """
    return rise / c * (e if distribution == "gaussian" else e.reciprocal())


@dataclass(frozen=True)
class AdamW:
    """AdamW's moments. A step returns new ones, so saved states never change."""

    first: Tensor
    second: Tensor
    steps: int = 0

    @classmethod
    def fresh(cls, like: Tensor) -> AdamW:
        """Moments before the first step."""
        return cls(torch.zeros_like(like), torch.zeros_like(like))

    def step(self, values: Tensor, gradient: Tensor, lr: float, weight_decay: float) -> tuple[Tensor, AdamW]:
        """The values and the moments after one step; β = (0.9, 0.999)."""
        steps = self.steps + 1
        first = self.first.lerp(gradient, 0.1)
        second = self.second.lerp(gradient.square(), 0.001)
        scale = (second / (1 - 0.999**steps)).sqrt() + 1e-8
        decayed = values * (1 - lr * weight_decay)
        return decayed - lr * (first / (1 - 0.9**steps)) / scale, AdamW(first, second, steps)
