"""Scales of uniform quantisers from data: the whole range, or the part of it with least error."""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from torch import Tensor

from tta_bench_quantizers.fake import (
    affine,
    affine_parameters,
    fake_quantize,
    pad_zero,
    symmetric_bounds,
)

Rule: TypeAlias = Literal["minmax", "mse"]
GRID = 100  # the range is tried at 1 %, 2 %, … 100 % of itself


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


def affine_scale(values: Tensor, low: Tensor, high: Tensor, bits: int, rule: Rule) -> tuple[Tensor, Tensor]:
    """Scale [] and zero point [] of a tensor in low…high; the error is measured on `values`."""
    low, high = pad_zero(low, high)
    full = affine_parameters(low, high, bits)
    if rule == "minmax":
        return full
    best, least = full, torch.inf
    for step in range(1, GRID + 1):
        trial = affine_parameters(low * (step / GRID), high * (step / GRID), bits)
        error = float((affine(values, *trial, bits) - values).square_().sum())
        if error < least:
            best, least = trial, error
    return best
