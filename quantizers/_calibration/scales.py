"""Scales of uniform quantisers: the whole range of the data, or the part of it with the least error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import pad

from tta_bench_quantizers._calibration.histogram import ValueHistogram
from tta_bench_quantizers._core.fake_quantization import (
    affine_parameters,
    fake_quantize,
    pad_zero,
    symmetric_bounds,
)

Rule: TypeAlias = Literal["minmax", "mse"]
GRID = 100  # candidates are 1 %, 2 %, … 100 % of the range


def symmetric_row_scales(w: Tensor, bits: int, rule: Rule) -> Tensor:
    """[O] scales of a weight, one for each output row."""
    rows = w.detach().flatten(1)
    low, high = symmetric_bounds(bits)
    full = rows.abs().amax(1).clamp_min(torch.finfo(torch.float32).tiny) / high
    if rule == "minmax":
        return full
    best, least = full, torch.full_like(full, torch.inf)
    for step in range(1, GRID + 1):
        scale = full * (step / GRID)
        error = (fake_quantize(rows, scale[:, None], low, high) - rows).square_().sum(1)
        best, least = torch.where(error < least, scale, best), torch.minimum(error, least)
    return best


def affine_scale(seen: ValueHistogram, bits: int, rule: Rule) -> tuple[Tensor, Tensor]:
    """Scale [] and zero point [] of a tensor."""
    shares = [step / GRID for step in range(1, GRID + 1)]
    return least_error_share(seen, bits, shares if rule == "mse" else [1.0])


def least_error_share(seen: ValueHistogram, bits: int, shares: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Scale [] and zero point [] of the share of the range with the least squared error."""
    low, high = pad_zero(seen.low, seen.high)
    tried = torch.tensor(shares)
    scales, zeros = affine_parameters(low * tried, high * tried, bits)
    points, counts = seen.points()
    best = affine_errors(points, counts, scales, zeros, bits).argmin()
    return scales[best], zeros[best]


def affine_errors(points: Tensor, counts: Tensor, scales: Tensor, zeros: Tensor, bits: int) -> Tensor:
    """[P] squared errors of quantisers (scales and zero points [P]), less a constant that all have in common.

    `points` ascend. Points are rounded to the nearest level, so the errors are sums over levels of
    count · level² − 2 · level · sum of points.
    """
    levels = (torch.arange(2**bits) - zeros[:, None]) * scales[:, None].double()
    cuts = torch.searchsorted(points, (levels[:, :-1] + levels[:, 1:]) / 2)
    cuts = pad(pad(cuts, (1, 0)), (0, 1), value=len(points))
    taken, sums = (pad(each.cumsum(0), (1, 0))[cuts].diff(dim=1) for each in (counts, counts * points))
    return (taken * levels.square() - 2 * levels * sums).sum(1)
