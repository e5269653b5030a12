"""Twin uniform quantisers (PTQ4ViT): two ranges share the codes, the most significant bit selects one."""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from torch import Tensor

from tta_bench_quantizers._core import kernels
from tta_bench_quantizers._core.activations import ActivationQuantizer, in_chunks
from tta_bench_quantizers._core.fake_quantization import fake_quantize

TwinMode: TypeAlias = Literal["paper", "released"]
GELU_DEPTH = 0.16997124  # GELU's minimum, negated


def twin_softmax(x: Tensor, split: Tensor, bits: int, mode: TwinMode) -> Tensor:
    """Values in [0, 1]: steps of split/Q below `split`, of 1/Q from it on, Q = 2^(bits−1) − 1."""
    return _select(x, split, bits) if mode == "paper" else _sum(x, split, bits)


def _select(x: Tensor, split: Tensor, bits: int) -> Tensor:
    """Paper: each value is quantised by the range in which it lies."""
    top = 2 ** (bits - 1) - 1
    step = torch.where(x < split, split / top, 1 / top)
    return torch.div(x, step).round_().mul_(step)


def _sum(x: Tensor, split: Tensor, bits: int) -> Tensor:
    """Released code: both branches are clamped to their range, quantised, and added."""
    top = 2 ** (bits - 1) - 1
    low = fake_quantize(x.clamp_max(split), split / top, 0.0, top)
    return low.add_(fake_quantize(x.clamp_min(split), torch.ones_like(split) / top, 0.0, top))


def twin_gelu(x: Tensor, scale: Tensor, bits: int) -> Tensor:
    """Step `scale` for x ≥ 0, a fixed one that reaches GELU's minimum for x < 0."""
    half = 2.0 ** (bits - 1)
    negative = fake_quantize(x, torch.full_like(scale, GELU_DEPTH / half), -half, 0.0)
    # One of the two is always 0. Selecting a step for each element is bit-equal, and slower on a CPU.
    return negative.add_(fake_quantize(x, scale, 0.0, half - 1))


class TwinSoftmax(ActivationQuantizer):
    """`twin_softmax` with its split."""

    split: Tensor

    def __init__(self, split: Tensor, bits: int, mode: TwinMode) -> None:
        super().__init__()
        self.bits, self.mode = bits, mode
        self.register_buffer("split", split)

    def eager(self, x: Tensor) -> Tensor:
        return in_chunks(lambda part: twin_softmax(part, self.split, self.bits, self.mode), x)

    def fused(self, x: Tensor) -> Tensor:
        fine, coarse = self.scales().tolist()
        numbers = (float(self.split), fine, coarse)
        if self.mode == "paper":
            return kernels.run("twin_select", x, *numbers, in_place=self.in_place)
        top = 2 ** (self.bits - 1) - 1
        return kernels.run("twin_sum", x, *numbers, top, in_place=self.in_place)

    def clipped(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x, dtype=torch.bool)  # the ranges cover all values of a softmax

    def scales(self) -> Tensor:
        return torch.stack([self.split, torch.ones_like(self.split)]) / (2 ** (self.bits - 1) - 1)


class TwinGelu(ActivationQuantizer):
    """`twin_gelu` with its positive scale."""

    scale: Tensor

    def __init__(self, scale: Tensor, bits: int) -> None:
        super().__init__()
        self.bits = bits
        self.register_buffer("scale", scale)

    def eager(self, x: Tensor) -> Tensor:
        return in_chunks(lambda part: twin_gelu(part, self.scale, self.bits), x)

    def clipped(self, x: Tensor) -> Tensor:
        return torch.div(x, self.scale).round_() > 2 ** (self.bits - 1) - 1

    def scales(self) -> Tensor:
        negative = torch.full_like(self.scale, GELU_DEPTH / 2 ** (self.bits - 1))
        return torch.stack([negative, self.scale])
