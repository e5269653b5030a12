"""Fake quantisation with straight-through gradients: rounding has the derivative of the identity.

The values are those of `fake_quantize`, bit for bit. Gradients reach the tensor where it is not
clipped, and the scale everywhere, by plain autograd.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import relu

from tta_bench_quantizers._core.activations import UniformActivation
from tta_bench_quantizers._core.fake_quantization import Bound, clip_


class RoundClip(torch.autograd.Function):
    """clip(round(x), low, high), with derivative 1 wherever the rounded value is a code.

    `clamp` cannot be used: its derivative at the bounds is 0 or ½, and the outermost codes lie there.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, low: Bound, high: Bound) -> Tensor:  # type: ignore[override]
        code = x.round()
        ctx.save_for_backward((code >= low) & (code <= high))
        return clip_(code, low, high)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        (inside,) = ctx.saved_tensors
        return grad * inside, None, None


def quantize_straight_through(x: Tensor, scale: Tensor, low: Bound, high: Bound) -> Tensor:
    """scale · clip(round(x / scale), low, high), differentiable in x and scale."""
    return RoundClip.apply(x / scale, low, high) * scale


class DifferentiableActivation(UniformActivation):
    """A uniform quantiser with straight-through gradients for inputs that require them."""

    def forward(self, x: Tensor) -> Tensor:
        if x.requires_grad:
            x = relu(x) if self.fuses_relu else x  # its derivative is 0 below 0
            return quantize_straight_through(x, self.scale, *self.bounds())
        return super().forward(x)
