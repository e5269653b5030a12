"""PTQ4VM's activation quantiser: smoothed channels, one static affine range per token position.

Mixers have the time axis first, [L, B, C]; so have the scales, [L, 1, 1].
"""

from __future__ import annotations

import torch
from torch import Tensor

from tta_bench_quantizers._core.activations import ActivationQuantizer
from tta_bench_quantizers._core.fake_quantization import affine_bounds, fake_quantize


def extend_token_scales(rows: Tensor, extra: int, cls_row: int) -> Tensor:
    """`rows` with `extra` copies of the class token's row next to it.

    Prompts stand right after the class token, so right before it in a flipped sequence. Copies of a row are
    the same on either side of it, so this is right for both directions.
    """
    copies = rows[cls_row : cls_row + 1].expand(extra, *rows.shape[1:])
    return torch.cat([rows[:cls_row], copies, rows[cls_row:]])


class TokenActivation(ActivationQuantizer):
    """Qa(x / σ) with a scale and a zero point for each token; `cls_row` as this layer reads it."""

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
