"""Engine `torch-int8`: linear and convolutional layers on PyTorch's oneDNN integer operators.

An activation becomes unsigned 8-bit codes, the operator multiplies them with signed 8-bit codes of the
weight and sums in 32-bit integers, and the sums are scaled to float32. Norm layers, hooks and prompts see
float tensors as before. The weight is packed once and shared by all copies of a network.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tta_bench_quantizers._core.activations import UniformActivation
from tta_bench_quantizers._core.fake_quantization import dequantize
from tta_bench_quantizers._core.layers import QuantConv2d, QuantLayer, QuantLinear
from tta_bench_quantizers._core.straight_through import DifferentiableActivation
from tta_bench_quantizers._engines.not_a_number import nan_images_, nan_rows_
from tta_bench_quantizers._engines.unsigned_codes import unsigned_codes

FLOAT_OUTPUT: Any = (
    1.0,
    0,
    torch.float32,
    "none",
    [],
    "",
)  # the operator's scale, zero point, type and no activation


class InputGrid(NamedTuple):
    """Step and zero point of a layer's input."""

    scale: float
    zero: int


NO_GRIDS: Mapping[str, InputGrid] = MappingProxyType({})


class PackedWeight:
    """Signed codes, scales and the operator's packed form; nothing changes them, so copies share them."""

    def __init__(self, codes: Tensor, scale: Tensor, packed: Tensor) -> None:
        self.codes, self.scale, self.packed = codes, scale, packed
        self.zeros = torch.zeros(len(codes), dtype=torch.int64)

    def __deepcopy__(self, memo: dict[int, Any]) -> PackedWeight:
        return self

    @property
    def weight(self) -> Tensor:
        """The weight in float, computed from the codes at each call."""
        return dequantize(self.codes, self.scale)


class IntegerLayer(nn.Module):
    """A quantised layer whose products are computed in integers."""

    bias: Tensor | None

    def __init__(self, layer: QuantLayer, grid: InputGrid, packed: Tensor) -> None:
        super().__init__()
        self.bits, self.grid = layer.bits, grid
        rows = layer.scale.reshape(-1).repeat_interleave(len(layer.codes) // layer.scale.numel())
        self.packed = PackedWeight(layer.codes, rows.contiguous(), packed)
        self.register_buffer("bias", layer.bias)

    @property
    def weight(self) -> Tensor:
        """The weight in float, computed from the codes at each call."""
        return self.packed.weight

    def extra_repr(self) -> str:
        return f"{'x'.join(map(str, self.packed.codes.shape))}, bits={self.bits}"


class IntegerLinear(IntegerLayer):
    """nn.Linear in integers."""

    def __init__(self, layer: QuantLinear, grid: InputGrid) -> None:
        super().__init__(layer, grid, torch.ops.onednn.qlinear_prepack(layer.codes, None))
        self.in_features, self.out_features = layer.in_features, layer.out_features

    def forward(self, x: Tensor) -> Tensor:
        (codes, has_nan), weight = unsigned_codes(x, *self.grid), self.packed
        output = torch.ops.onednn.qlinear_pointwise(
            codes, *self.grid, weight.packed, weight.scale, weight.zeros, self.bias, *FLOAT_OUTPUT
        )
        return nan_rows_(output, x) if has_nan else output


class IntegerConv2d(IntegerLayer):
    """nn.Conv2d with zero padding in integers; zero is a code, so padding is exact."""

    def __init__(self, layer: QuantConv2d, grid: InputGrid) -> None:
        geometry = tuple(part if isinstance(part, int) else list(part) for part in layer.geometry)
        packed = torch.ops.onednn.qconv_prepack(layer.codes, layer.scale, *grid, *geometry, None)
        super().__init__(layer, grid, packed)
        self.geometry = geometry

    def forward(self, x: Tensor) -> Tensor:
        (codes, has_nan), weight = unsigned_codes(x, *self.grid), self.packed
        output = torch.ops.onednn.qconv_pointwise(
            codes.contiguous(memory_format=torch.channels_last),
            *self.grid,
            weight.packed,
            weight.scale,
            weight.zeros,
            self.bias,
            *self.geometry,
            *FLOAT_OUTPUT,
        )
        return nan_images_(output, x) if has_nan else output


def integer_layers(net: nn.Module) -> list[str]:
    """Names of the layers whose products are computed in integers."""
    return [name for name, module in net.named_modules() if isinstance(module, IntegerLayer)]


def grid_of(quantiser: nn.Module) -> InputGrid | None:
    """The grid of tensors that a quantiser makes, if it has 8 bits and one step, or None."""
    if type(quantiser) not in (UniformActivation, DifferentiableActivation):  # equal without gradients
        return None
    assert isinstance(quantiser, UniformActivation)
    if quantiser.bits != 8 or quantiser.scale.numel() != 1:
        return None
    low, _ = quantiser.bounds()
    return None if isinstance(low, Tensor) else InputGrid(float(quantiser.scale), -int(low))
