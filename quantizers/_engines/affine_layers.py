"""Engine `torch-int8` for weights with a zero point for each row, which the operators do not have.

With codes q from 0 to 255 and a zero point z, Σ (q − z)·x = Σ (q − 128)·x + (128 − z)·Σ x. The first sum has
signed codes and no zero point. The second is the same for all rows: one more row of ones computes it.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TypeVar

import torch
from torch import Tensor

from tta_bench_quantizers._core.fake_quantization import per_row
from tta_bench_quantizers._core.layers import QuantConv2d, QuantLayer, QuantLinear
from tta_bench_quantizers._engines.integer_layers import InputGrid, IntegerConv2d, IntegerLinear

MIDDLE = 128
Layer = TypeVar("Layer", bound=QuantLayer)


class AffineIntegerLinear(IntegerLinear):
    """nn.Linear in integers, with a zero point for each row."""

    def __init__(self, layer: QuantLinear, grid: InputGrid) -> None:
        super().__init__(_with_sum(layer), grid)
        self.register_buffer("offset", _offsets(layer).flatten())

    @property
    def weight(self) -> Tensor:
        return super().weight[:-1] + self.offset[:, None]

    def forward(self, x: Tensor) -> Tensor:
        products, sums = super().forward(x).tensor_split([-1], dim=-1)
        return torch.addcmul(products, self.offset, sums)


class AffineIntegerConv2d(IntegerConv2d):
    """nn.Conv2d in integers, with a zero point for each channel; groups would have different sums."""

    def __init__(self, layer: QuantConv2d, grid: InputGrid) -> None:
        super().__init__(_with_sum(layer), grid)
        self.register_buffer("offset", _offsets(layer).view(-1, 1, 1))

    @property
    def weight(self) -> Tensor:
        return super().weight[:-1] + self.offset[..., None]

    def forward(self, x: Tensor) -> Tensor:
        products, sums = super().forward(x).tensor_split([-1], dim=1)
        return torch.addcmul(products, self.offset, sums)


def _offsets(layer: QuantLayer) -> Tensor:
    """(128 − z) times the scale, for each row."""
    assert layer.zero is not None
    return (MIDDLE - per_row(layer.zero, layer.codes)) * per_row(layer.scale, layer.codes)


def _with_sum(layer: Layer) -> Layer:
    """The layer with signed codes, without zero points, and with a last row that sums its input."""
    new, rows = deepcopy(layer), per_row(layer.scale, layer.codes).flatten()
    signed = (layer.codes.to(torch.int16) - MIDDLE).to(torch.int8)
    new.codes = torch.cat([signed, torch.ones_like(signed[:1])])
    new.scale, new.zero = torch.cat([rows, torch.ones(1)]), None
    if layer.bias is not None:
        new.bias = torch.cat([layer.bias, torch.zeros(1)])
    return new
