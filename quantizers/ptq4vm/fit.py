"""PTQ4VM's initial scales of one linear layer: smoothing, weight rows, token ranges.

    y = Qa(x / σ) · Qw(W · σ)ᵀ,    σ_j = √max|x_j| / √max_i|W_ij|

Ranges are chosen by the least mean |error|^2.4.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tta_bench.api import Bits
from tta_bench_quantizers._core.fake_quantization import (
    affine,
    affine_parameters,
    clip_,
    fake_quantize,
    pad_zero,
)

POWER = 2.4
WEIGHT_TRIALS = 100  # candidates are 1 %, 2 %, … 100 % of the greatest weight
TOKEN_TRIALS = 50  # candidates cut 1 %, 2 %, … 50 % of the range at either end
CHUNK = 1 << 18  # values per chunk, which fit in a core's cache


@dataclass
class LinearFit:
    """Smoothing σ [C], weight scales [O], token scales and zero points [L]."""

    sigma: Tensor
    w_scale: Tensor
    a_scale: Tensor
    a_zero: Tensor


def fit_linear(layer: nn.Linear, x: Tensor, bits: Bits) -> LinearFit:
    """Initial scales from the layer's float inputs [L, B, C]."""
    weight = layer.weight.detach()
    sigma = smoothing(x, weight)
    a_scale, a_zero = token_parameters(x / sigma, bits.activation)
    return LinearFit(sigma, row_scales(weight * sigma, bits.weight), a_scale, a_zero)


def smoothing(x: Tensor, weight: Tensor) -> Tensor:
    """σ [C]: moves half of the differences between channels from activations to weights."""
    activation = x.abs().amax((0, 1)).clamp_min(1e-3)
    return (activation.sqrt() / weight.abs().amax(0).clamp_min(1e-5).sqrt()).clamp_min(1e-5)


def top_code(bits: int) -> int:
    """Greatest weight code; the least is its negative."""
    return 2 ** (bits - 1) - 1


def row_scales(weight: Tensor, bits: int) -> Tensor:
    """Scales [O] of a weight, one for each output row."""
    top = top_code(bits)
    full = weight.abs().amax(1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny) / top
    best, least = full, torch.full_like(full, torch.inf)
    for trial in range(1, WEIGHT_TRIALS + 1):
        scale = full * (trial / WEIGHT_TRIALS)
        error = _error(fake_quantize(weight, scale, -top, top), weight)
        best, least = torch.where(error < least, scale, best), torch.minimum(error, least)
    return best.squeeze(1)


def weight_codes(weight: Tensor, fit: LinearFit, bits: int) -> Tensor:
    """Signed codes of W · σ."""
    top = top_code(bits)
    steps = torch.div(weight.detach() * fit.sigma, fit.w_scale[:, None])
    return clip_(steps.round_(), -top, top).to(torch.int8)


def token_parameters(x: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Scales and zero points [L] of x [L, B, C]."""
    rows = x.flatten(1)
    chunks = rows.split(max(CHUNK // rows.shape[1], 1))
    scales, zeros = zip(*(_token_search(chunk, bits) for chunk in chunks), strict=True)
    return torch.cat(scales).squeeze(1), torch.cat(zeros).squeeze(1)


def _token_search(rows: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """lo = (1−α)·min + α·max, hi = α·min + (1−α)·max; α = 0 is not tried, as in the released code."""
    low, high = rows.amin(1, keepdim=True), rows.amax(1, keepdim=True)
    best_scale, best_zero = affine_parameters(*pad_zero(low, high), bits)
    least = torch.full_like(low, torch.inf)
    for trial in range(1, TOKEN_TRIALS + 1):
        cut = (high - low) * (trial / 100)
        scale, zero = affine_parameters(*pad_zero(low + cut, high - cut), bits)
        error = _error(affine(rows, scale, zero, bits), rows)
        better = error < least
        least = torch.where(better, error, least)
        best_scale = torch.where(better, scale, best_scale)
        best_zero = torch.where(better, zero, best_zero)
    return best_scale, best_zero


def _error(quantised: Tensor, rows: Tensor) -> Tensor:
    """Mean |error|^2.4 of each row [R, 1]; overwrites `quantised`. exp2 and log2 are much faster than pow."""
    powers = quantised.sub_(rows).abs_().log2_().mul_(POWER).exp2_()
    return powers.mean(1, keepdim=True)
