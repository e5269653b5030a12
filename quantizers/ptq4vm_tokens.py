"""PTQ4VM's activation quantiser: channels smoothed, one static affine range for each token position.

Mixers run time first, on [L, B, C]; so do the scales, as [L, 1, 1].
"""

from __future__ import annotations

import torch
from torch import Tensor

from tta_bench_quantizers import kernels
from tta_bench_quantizers.activations import ActivationQuantizer
from tta_bench_quantizers.fake import affine_bounds, fake_quantize


def extend_token_scales(rows: Tensor, extra: int, cls_row: int) -> Tensor:
    """`rows` with `extra` copies of the class token's row next to it.

    Prompts stand right behind the class token, hence right before it in a flipped sequence. Copies of
    one row look the same on either side of it, so one rule serves both directions.
    """
    copies = rows[cls_row : cls_row + 1].expand(extra, *rows.shape[1:])
    return torch.cat([rows[:cls_row], copies, rows[cls_row:]])


class TokenActivation(ActivationQuantizer):
    """Qa(x / σ) with a scale and a zero point for each token; `cls_row` counts as this layer sees it."""

    sigma: Tensor
    scale: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, sigma: Tensor, scale: Tensor, zero: Tensor, bits: int, cls_row: int) -> None:
        super().__init__()
        self.bits, self.cls_row = bits, cls_row
        low, high = affine_bounds(zero.view(-1, 1, 1), bits)
        rows = {"scale": scale.float().view(-1, 1, 1), "low": low, "high": high}
        for name, tensor in {"sigma": sigma.float(), **rows}.items():
            self.register_buffer(name, torch.as_tensor(tensor))

    def eager(self, x: Tensor) -> Tensor:
        return fake_quantize(x / self.sigma, *self.rows(len(x)))

    def fused(self, x: Tensor) -> Tensor:
        return kernels.run("smoothed", x, *self.rows(len(x)), self.sigma, granule=0)

    def rows(self, length: int) -> tuple[Tensor, Tensor, Tensor]:
        """Scale, least and greatest code for each of `length` tokens."""
        known = (self.scale, self.low, self.high)
        extra = length - len(self.scale)
        if extra == 0:
            return known
        if extra < 0:
            raise ValueError(f"calibrated for {len(self.scale)} tokens, and there are {length}")
        scale, low, high = (extend_token_scales(t, extra, self.cls_row) for t in known)
        return scale, low, high

    def clipped(self, x: Tensor) -> Tensor:
        scale, low, high = self.rows(len(x))
        code = torch.div(x / self.sigma, scale).round_()
        return (code < low) | (code > high)

    def scales(self) -> Tensor:
        return self.scale.flatten()
