"""MQBench's MSE observers: the range is shrunk in steps of 1 % to the least squared error."""

from __future__ import annotations

import torch
from torch import Tensor

from tta_bench_quantizers._calibration.histogram import ValueHistogram
from tta_bench_quantizers._calibration.scales import least_error_share
from tta_bench_quantizers._core.fake_quantization import affine, affine_parameters, pad_zero

WEIGHT_TRIALS = 80  # 100 %, 99 %, … 21 % of the range
ACTIVATION_TRIALS = 95  # … 6 %


def weight_parameters(weight: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Scales and zero points [O], one for each output channel."""
    rows = weight.detach().flatten(1)
    return least_error(rows, rows.amin(1), rows.amax(1), bits, WEIGHT_TRIALS)


def activation_parameters(seen: ValueHistogram, bits: int) -> tuple[Tensor, Tensor]:
    """Scale [] and zero point [] of a tensor."""
    return least_error_share(seen, bits, [1 - 0.01 * trial for trial in range(ACTIVATION_TRIALS)])


def least_error(values: Tensor, low: Tensor, high: Tensor, bits: int, trials: int) -> tuple[Tensor, Tensor]:
    """Scales and zero points [G] of the ranges low…high with the least squared error on values [G, n]."""
    low, high = pad_zero(low, high)
    best_scale, best_zero = affine_parameters(low, high, bits)
    least = torch.full_like(low, torch.inf)
    for trial in range(trials):
        share = 1 - 0.01 * trial
        scale, zero = affine_parameters(low * share, high * share, bits)
        error = (affine(values, scale[:, None], zero[:, None], bits) - values).square_().sum(1)
        better = error < least
        least = torch.where(better, error, least)
        best_scale = torch.where(better, scale, best_scale)
        best_zero = torch.where(better, zero, best_zero)
    return best_scale, best_zero
