"""The AdaLog quantiser: logarithmic codes with a searched base 2^(q/37), decoded through a table.

    n = round(−log2(clip(x/s, 1e−15, 1)) · 37/q);   n ≥ 2^b gives 0, else
    x̂ = s · 2^(−⌊nq/37⌋) · T[nq mod 37],   T[j] = round(2^(−j/37) · M)/M,   M = 2^(b+1) − 2

T is coarse, as integer hardware would have it; at run time all of it is one table of 2^b entries.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tta_bench_quantizers.activations import ActivationQuantizer, in_chunks

R = 37
BASES = range(10, 138)  # candidate q


def fraction_table(bits: int) -> Tensor:
    """T: the fractional powers of two, on M steps."""
    steps = 2 ** (bits + 1) - 2
    return (2.0 ** (-torch.arange(R) / R) * steps).round() / steps


def level_table(q: Tensor, bits: int) -> Tensor:
    """[…, 2^b + 1] values that codes stand for, the last of them 0; `q` is any integer tensor."""
    exponent = torch.arange(2**bits, device=q.device) * q.long().unsqueeze(-1)
    fractions = fraction_table(bits).to(q.device)[exponent % R]
    levels = torch.ldexp(fractions, -(exponent // R))
    return torch.cat([levels, torch.zeros_like(levels[..., :1])], dim=-1)


def log_codes(x: Tensor, scale: Tensor, q: Tensor, bits: int) -> Tensor:
    """Codes 0 … 2^b as int32; 2^b means zero. `scale` and `q` broadcast."""
    code = torch.div(x, scale).clamp_(1e-15, 1).log2_().mul_(-R / q).round_()
    return code.clamp_max_(2**bits).int()


def look_up(table: Tensor, codes: Tensor) -> Tensor:
    """table[codes]; this form of it is by far the fastest on a CPU."""
    return table.index_select(0, codes.reshape(-1)).view(codes.shape)


def adalog(x: Tensor, scale: Tensor, q: Tensor, bits: int) -> Tensor:
    """x̂ for any number of bases at once; `scale` and `q` broadcast against x."""
    offset = torch.arange(q.numel(), device=q.device).view(q.shape) * (2**bits + 1)
    codes = log_codes(x, scale, q, bits) + offset.int()
    return look_up(level_table(q.flatten(), bits).flatten(), codes) * scale


class AdaLogActivation(ActivationQuantizer):
    """Quantises x + shift. The shift is not taken out again: the layer's bias must do that."""

    scale: Tensor
    q: Tensor
    levels: Tensor

    def __init__(self, scale: Tensor, q: Tensor, bits: int, shift: float = 0.0) -> None:
        super().__init__()
        self.bits, self.shift = bits, shift
        self.register_buffer("scale", scale)
        self.register_buffer("q", q)
        self.register_buffer("levels", level_table(q, bits) * scale, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return in_chunks(self._quantise, x)

    def _quantise(self, x: Tensor) -> Tensor:
        x = x + self.shift if self.shift else x
        return look_up(self.levels, log_codes(x, self.scale, self.q, self.bits))

    def clipped(self, x: Tensor) -> Tensor:
        return x + self.shift > self.scale

    def scales(self) -> Tensor:
        return self.scale.flatten()
