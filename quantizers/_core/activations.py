"""Uniform activation quantisers as modules; schemes have their own besides (twin, AdaLog).

`eager` computes with PyTorch's operations. Some have a second form, `fused`, which reads memory once, needs a
compiler and gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tta_bench_quantizers._core import kernels
from tta_bench_quantizers._core.fake_quantization import Bound, affine_bounds, fake_quantize, symmetric_bounds

CACHE_ELEMENTS = 1 << 17  # elements per chunk: intermediate results fit in a core's cache


def in_chunks(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """function(x) for an elementwise function of many steps, chunk by chunk: up to three times as fast."""
    if x.numel() <= CACHE_ELEMENTS or not x.is_cpu:
        return function(x)
    x = x.contiguous()
    out = torch.empty_like(x)
    for part, place in zip(x.view(-1).split(CACHE_ELEMENTS), out.view(-1).split(CACHE_ELEMENTS), strict=True):
        place.copy_(function(part))
    return out


class ActivationQuantizer(nn.Module):
    """Base: a module from tensor to tensor that knows its bits and which elements it clips."""

    bits: int
    in_place = False  # no other module reads the input, so it may be overwritten

    def forward(self, x: Tensor) -> Tensor:
        return self.fused(x) if kernels.available(x) else self.eager(x)

    def eager(self, x: Tensor) -> Tensor:
        """The quantised tensor, computed by PyTorch's operations."""
        raise NotImplementedError

    def fused(self, x: Tensor) -> Tensor:
        """The same numbers by a kernel, where one was found to pay off."""
        return self.eager(x)

    def clipped(self, x: Tensor) -> Tensor:
        """Boolean mask of the elements of x outside the representable range."""
        raise NotImplementedError

    def scales(self) -> Tensor:
        """All step sizes, flat; for reports."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        return f"bits={self.bits}"


class UniformActivation(ActivationQuantizer):
    """Affine with zero points, symmetric without; scales and zero points broadcast against the tensor."""

    scale: Tensor
    fuses_relu = False  # also does the work of the ReLU that stood before it

    def __init__(self, scale: Tensor, zero: Tensor | None, bits: int) -> None:
        super().__init__()
        self.bits = bits
        self.register_buffer("scale", scale.float())
        low, high = symmetric_bounds(bits) if zero is None else affine_bounds(zero, bits)
        self.low, self.high = self._keep("low_bound", low), self._keep("high_bound", high)

    def _keep(self, name: str, bound: Bound) -> float | None:
        """Keep a number as an attribute and a tensor as a buffer, which moves with the module."""
        if not isinstance(bound, Tensor):
            return bound
        self.register_buffer(name, bound)
        return None

    def bounds(self) -> tuple[Bound, Bound]:
        """Least and greatest code; the least is 0 after a fused ReLU (0 is a code of every range)."""
        if self.low is None or self.high is None:
            return self.low_bound, self.high_bound  # type: ignore[return-value]
        return 0.0 if self.fuses_relu else self.low, self.high

    def eager(self, x: Tensor) -> Tensor:
        return fake_quantize(x, self.scale, *self.bounds())

    def fused(self, x: Tensor) -> Tensor:
        low, high = self.bounds()
        many = [i for i, size in enumerate(self.scale.shape) if size > 1]
        axis = many[0] + x.dim() - self.scale.dim() if many else None
        tensors = (low, high) if isinstance(low, Tensor) else (None, None)
        numbers = (0.0, 0.0) if isinstance(low, Tensor) else (low, high)
        return kernels.run("uniform", x, self.scale, *tensors, *numbers, axis=axis, in_place=self.in_place)

    def clipped(self, x: Tensor) -> Tensor:
        low, high = self.bounds()
        code = torch.div(x, self.scale).round_()
        return code > high if self.fuses_relu else (code < low) | (code > high)

    def scales(self) -> Tensor:
        return self.scale.flatten()
