"""The AdaLog quantiser: logarithmic codes with a searched base 2^(q/37), decoded through a table.

    n = round(−log2(clip(x/s, 1e−15, 1)) · 37/q);   n ≥ 2^b gives 0, else
    x̂ = s · 2^(−⌊nq/37⌋) · T[nq mod 37],   T[j] = round(2^(−j/37) · M)/M,   M = 2^(b+1) − 2

T is coarse, as on integer hardware; at run time everything is one table. It has 2^b + 1 levels, one more than
b bits can represent: the codes 0 … 2^b − 1 and zero. The authors' code has the same, so their published
figures at b bits are of 2^b + 1 levels. Byte counts assume b bits per code, as activations are never stored.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from tta_bench_quantizers._core import kernels
from tta_bench_quantizers._core.activations import ActivationQuantizer, in_chunks

R = 37
BASES = range(10, 138)  # candidate q
MOST_COMPARED_BITS = 5
NEIGHBOURS = 64  # floats on either side of a threshold at which it is checked


def fraction_table(bits: int) -> Tensor:
    """T: the fractional powers of two, on M steps."""
    steps = 2 ** (bits + 1) - 2
    return (2.0 ** (-torch.arange(R) / R) * steps).round() / steps


def level_table(q: Tensor, bits: int) -> Tensor:
    """[…, 2^b + 1] values that codes represent, the last of them 0; `q` is any integer tensor."""
    exponent = torch.arange(2**bits, device=q.device) * q.long().unsqueeze(-1)
    fractions = fraction_table(bits).to(q.device)[exponent % R]
    levels = torch.ldexp(fractions, -(exponent // R))
    return torch.cat([levels, torch.zeros_like(levels[..., :1])], dim=-1)


def log_codes(x: Tensor, scale: Tensor, q: Tensor, bits: int) -> Tensor:
    """Codes 0 … 2^b, still float; 2^b means zero. `scale` and `q` broadcast."""
    code = torch.div(x, scale).clamp_(1e-15, 1).log2_().mul_(-R / q).round_()
    return code.clamp_max_(2**bits)


def look_up(table: Tensor, codes: Tensor) -> Tensor:
    """table[codes], in the form that is by far the fastest on a CPU."""
    return table.index_select(0, codes.reshape(-1)).view(codes.shape)


def adalog(x: Tensor, scale: Tensor, q: Tensor, bits: int) -> Tensor:
    """x̂ for any number of bases at once; `scale` and `q` broadcast against x."""
    offset = torch.arange(q.numel(), device=q.device).view(q.shape) * (2**bits + 1)
    codes = log_codes(x, scale, q, bits).int() + offset.int()
    return look_up(level_table(q.flatten(), bits).flatten(), codes) * scale


def find_thresholds(codes: Callable[[Tensor], Tensor], count: int) -> Tensor | None:
    """For n < count, the least number whose code is at most n; None unless codes fall with every step.

    So the code of x is the number of thresholds above x, and comparisons replace the logarithm, including its
    rounding errors. Found by bisection over all floats, and checked around every threshold.
    """
    wanted = torch.arange(count)
    ends = torch.tensor([-torch.inf, torch.inf])
    low, high = (_rank(end).repeat(count) for end in ends)
    while (low < high).any():
        middle = (low + high).div(2, rounding_mode="floor")
        small = codes(_number(middle)) <= wanted
        low, high = torch.where(small, low, middle + 1), torch.where(small, middle, high)
    thresholds = _number(high)
    around = _number((high[:, None] + torch.arange(-NEIGHBOURS, NEIGHBOURS)).clamp(*map(int, _rank(ends))))
    steps = (around.unsqueeze(-1) < thresholds).sum(-1)
    return thresholds if torch.equal(steps, codes(around).long()) else None


def _rank(x: Tensor) -> Tensor:
    """The position of a float among all floats; zero has position 0."""
    bits = x.view(torch.int32).long()
    return torch.where(bits < 0, -(2**31) - bits, bits)


def _number(rank: Tensor) -> Tensor:
    """The float at a position."""
    return torch.where(rank < 0, -(2**31) - rank, rank).int().view(torch.float32)


class AdaLogActivation(ActivationQuantizer):
    """Quantises x + shift; the layer's bias must subtract the shift again."""

    scale: Tensor
    q: Tensor
    levels: Tensor

    def __init__(self, scale: Tensor, q: Tensor, bits: int, shift: float = 0.0) -> None:
        super().__init__()
        self.bits, self.shift = bits, shift
        self.register_buffer("scale", scale)
        self.register_buffer("q", q)
        levels = torch.cat([level_table(q, bits) * scale, scale.new_full((1,), torch.nan)])
        self.register_buffer("levels", levels, persistent=False)  # the last entry is for NaN

    def eager(self, x: Tensor) -> Tensor:
        return in_chunks(lambda part: look_up(self.levels, self._codes(part).int()), x)

    def fused(self, x: Tensor) -> Tensor:
        if self.thresholds is None:
            return self.eager(x)
        steps = len(self.thresholds)
        return kernels.run("staircase", x, self.thresholds, self.levels, steps, in_place=self.in_place)

    @cached_property
    def thresholds(self) -> Tensor | None:
        """Thresholds between codes; None if there are so many that the logarithm is faster."""
        return find_thresholds(self._codes, 2**self.bits) if self.bits <= MOST_COMPARED_BITS else None

    def _codes(self, x: Tensor) -> Tensor:
        x = x + self.shift if self.shift else x
        return log_codes(x, self.scale, self.q, self.bits).nan_to_num_(2**self.bits + 1)

    def clipped(self, x: Tensor) -> Tensor:
        return x + self.shift > self.scale

    def scales(self) -> Tensor:
        return self.scale.flatten()
