"""Uniform activation quantisers as modules; schemes add their own beside them (twin, AdaLog).

Each has two forms that give the same numbers: `eager`, in PyTorch's operations, and `fused`, which goes
over memory once and needs a compiler.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tta_bench_quantizers import kernels
from tta_bench_quantizers.fake import Bound, affine_bounds, fake_quantize, symmetric_bounds

CACHEFUL = 1 << 17  # elements whose intermediate results stay in a core's cache


def in_chunks(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """function(x) for an elementwise function of many steps; up to three times as fast on a CPU."""
    if x.numel() <= CACHEFUL or not x.is_cpu:
        return function(x)
    x = x.contiguous()
    out = torch.empty_like(x)
    for part, place in zip(x.view(-1).split(CACHEFUL), out.view(-1).split(CACHEFUL), strict=True):
        place.copy_(function(part))
    return out


class ActivationQuantizer(nn.Module):
    """Base: a module from tensor to tensor that knows its bits and what it clips."""

    bits: int
    owns_input = False  # nobody else reads the tensor that comes in: it may be overwritten

    def forward(self, x: Tensor) -> Tensor:
        return self.fused(x) if kernels.available(x) else self.eager(x)

    def eager(self, x: Tensor) -> Tensor:
        """The quantised tensor, by PyTorch."""
        raise NotImplementedError

    def fused(self, x: Tensor) -> Tensor:
        """The same, by a kernel."""
        raise NotImplementedError

    def clipped(self, x: Tensor) -> Tensor:
        """Which elements of x fall outside the representable range (boolean)."""
        raise NotImplementedError

    def scales(self) -> Tensor:
        """All step sizes, flat; for reports."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        return f"bits={self.bits}"


class UniformActivation(ActivationQuantizer):
    """Symmetric without, affine with zero points; both broadcast against the tensor."""

    scale: Tensor
    rectifies = False  # takes over the work of a ReLU before it

    def __init__(self, scale: Tensor, zero: Tensor | None, bits: int) -> None:
        super().__init__()
        self.bits = bits
        self.register_buffer("scale", scale.float())
        low, high = symmetric_bounds(bits) if zero is None else affine_bounds(zero, bits)
        self.low, self.high = self._keep("low_bound", low), self._keep("high_bound", high)

    def _keep(self, name: str, bound: Bound) -> float | None:
        """Numbers stay attributes; tensors become buffers, so that they move with the module."""
        if not isinstance(bound, Tensor):
            return bound
        self.register_buffer(name, bound)
        return None

    def bounds(self) -> tuple[Bound, Bound]:
        """Least and greatest code; of a rectified tensor the least is 0, a code of every range."""
        if self.low is None or self.high is None:
            return self.low_bound, self.high_bound  # type: ignore[return-value]
        return 0.0 if self.rectifies else self.low, self.high

    def eager(self, x: Tensor) -> Tensor:
        return fake_quantize(x, self.scale, *self.bounds())

    def fused(self, x: Tensor) -> Tensor:
        low, high = self.bounds()
        many = [i for i, size in enumerate(self.scale.shape) if size > 1]
        granule = many[0] + x.dim() - self.scale.dim() if many else None
        tensors = (low, high) if isinstance(low, Tensor) else (None, None)
        numbers = (0.0, 0.0) if isinstance(low, Tensor) else (low, high)
        return kernels.run(
            "uniform", x, self.scale, *tensors, *numbers, granule=granule, in_place=self.owns_input
        )

    def clipped(self, x: Tensor) -> Tensor:
        low, high = self.bounds()
        code = torch.div(x, self.scale).round_()
        return code > high if self.rectifies else (code < low) | (code > high)

    def scales(self) -> Tensor:
        return self.scale.flatten()
