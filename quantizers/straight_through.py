"""Fake quantisation through which gradients pass: rounding counts as the identity.

The values are those of `fake.fake_quantize`, bit for bit. Gradients reach the tensor where it is not
clipped, and the scale everywhere, by plain autograd.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from tta_bench_quantizers.activations import UniformActivation
from tta_bench_quantizers.fake import Bound


class RoundStraightThrough(torch.autograd.Function):
    """round, with derivative 1."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # type: ignore[override]
        return x.round()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad


def round_straight_through(x: Tensor) -> Tensor:
    """Rounded half to even; the gradient passes unchanged."""
    return RoundStraightThrough.apply(x)


def quantize_straight_through(x: Tensor, scale: Tensor, low: Bound, high: Bound) -> Tensor:
    """scale · clip(round(x / scale), low, high), differentiable in x and scale."""
    return torch.clamp(round_straight_through(x / scale), low, high) * scale  # type: ignore[arg-type]


class DifferentiableActivation(UniformActivation):
    """A uniform quantiser that lets gradients through when its input carries any."""

    def forward(self, x: Tensor) -> Tensor:
        if x.requires_grad:
            return quantize_straight_through(x, self.scale, *self.bounds())
        return super().forward(x)
