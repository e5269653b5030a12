"""Fake quantisation as pure functions, used by all schemes.

    symmetric  Qs(x; s, b)    = s · clip(round(x/s), −2^(b−1), 2^(b−1) − 1)
    affine     Qa(x; s, z, b) = s · (clip(round(x/s) + z, 0, 2^b − 1) − z)
                              = s · clip(round(x/s), −z, 2^b − 1 − z)          (bit-equal)

so both are `fake_quantize` with different bounds, and no zero point is needed at run time. Rounding is
half to even. Scales and bounds broadcast: [] per tensor, [O, 1] per row, [1, H, 1, 1] per head.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import torch
from torch import Tensor

from tta_bench.api import BitRange, Interval

Bound: TypeAlias = "float | Tensor"
# Codes are stored as bytes; with one bit a symmetric grid would have no code above zero.
LowBits = Annotated[str, BitRange((2, 8), (2, 8))]
LowWidth = Annotated[int, Interval(ge=2, le=8)]


def symmetric_bounds(bits: int) -> tuple[float, float]:
    """Least and greatest signed code."""
    half = 2.0 ** (bits - 1)
    return -half, half - 1


def affine_bounds(zero: Tensor, bits: int) -> tuple[Bound, Bound]:
    """Least and greatest code minus `zero`; numbers if there is one zero point, since they clip faster."""
    top = 2**bits - 1
    if zero.numel() == 1:
        return -float(zero), top - float(zero)
    zero = zero.float()
    return -zero, top - zero


def clip_(x: Tensor, low: Bound, high: Bound) -> Tensor:
    """Clip in place."""
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        return x.clamp_min_(low).clamp_max_(high)  # twice as fast as clamp_ with two tensors
    return x.clamp_(low, high)


def fake_quantize(x: Tensor, scale: Tensor, low: Bound, high: Bound) -> Tensor:
    """scale · clip(round(x / scale), low, high); one new tensor, the rest in place."""
    return clip_(torch.div(x, scale).round_(), low, high).mul_(scale)


def symmetric(x: Tensor, scale: Tensor, bits: int) -> Tensor:
    """Qs."""
    return fake_quantize(x, scale, *symmetric_bounds(bits))


def affine(x: Tensor, scale: Tensor, zero: Tensor, bits: int) -> Tensor:
    """Qa."""
    return fake_quantize(x, scale, *affine_bounds(zero, bits))


def symmetric_codes(w: Tensor, scale: Tensor, bits: int) -> Tensor:
    """Signed integer codes, contiguous; `scale` is [G] with G groups of consecutive rows."""
    codes = clip_(torch.div(w, per_row(scale, w)).round_(), *symmetric_bounds(bits))
    return codes.to(torch.int8).contiguous()


def affine_codes(w: Tensor, scale: Tensor, zero: Tensor, bits: int) -> Tensor:
    """Unsigned integer codes, contiguous; `scale` and `zero` are [G]."""
    codes = torch.div(w, per_row(scale, w)).round_().add_(per_row(zero, w))
    return codes.clamp_(0, 2**bits - 1).to(torch.uint8).contiguous()


def dequantize(codes: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """The weight that the codes represent; bit-equal for stored and fresh codes."""
    steps = codes.float()
    if zero is not None:
        steps = steps - per_row(zero, codes)
    return steps * per_row(scale, codes)


def per_row(values: Tensor, w: Tensor) -> Tensor:
    """[G] as a column that broadcasts over a weight of O rows; each group has O/G of them."""
    rows = values.float().reshape(-1).repeat_interleave(len(w) // values.numel())
    return rows.view(-1, *[1] * (w.dim() - 1))


def pad_zero(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """The range extended to contain 0, so that zero is a code (padding, ReLU)."""
    return low.clamp_max(0), high.clamp_min(0)


def affine_parameters(low: Tensor, high: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Scale (float32) and zero point (int16) of a range that contains 0."""
    top = 2**bits - 1
    scale = ((high - low) / top).clamp_min(torch.finfo(torch.float32).tiny)
    return scale, (-low / scale).round().clamp(0, top).to(torch.int16)
