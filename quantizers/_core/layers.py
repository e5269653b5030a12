"""Quantised layers: integer codes and scales in buffers, and the weight, computed once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, linear

from tta_bench_quantizers._core.fake_quantization import dequantize


class QuantLayer(nn.Module):
    """A linear or convolutional layer whose weight is `dequantize(codes, scale, zero)`.

    `input` quantises the activation (Identity leaves it in float); the bias is float. `column_scale`, if
    given, holds the factors of the float weight's columns before quantisation (smoothing,
    reparametrisation). Only reports use it.
    """

    codes: Tensor
    scale: Tensor
    zero: Tensor | None
    bias: Tensor | None
    weight: Tensor
    column_scale: Tensor | None

    def __init__(
        self,
        layer: nn.Module,
        codes: Tensor,
        scale: Tensor,
        zero: Tensor | None = None,
        *,
        bits: int,
        input: nn.Module | None = None,
        bias: Tensor | None = None,
        column_scale: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.bits = bits
        self.input = nn.Identity() if input is None else input
        old = layer.bias
        bias = old.detach() if bias is None and isinstance(old, Tensor) else bias
        stored = {"codes": codes, "scale": scale.float(), "zero": zero, "bias": bias}
        for name, tensor in stored.items():
            self.register_buffer(name, tensor)
        self.register_buffer("column_scale", column_scale, persistent=False)
        self.register_buffer("weight", _like(layer.weight, self.recompute()), persistent=False)

    def recompute(self) -> Tensor:
        """The weight, from the codes."""
        return dequantize(self.codes, self.scale, self.zero)

    def set_codes(self, codes: Tensor) -> None:
        """Set other codes on the same grid (learned rounding) and recompute the weight."""
        self.codes = codes
        self.weight.copy_(self.recompute())

    def extra_repr(self) -> str:
        return f"{'x'.join(map(str, self.codes.shape))}, bits={self.bits}"


class QuantLinear(QuantLayer):
    """Quantised nn.Linear."""

    def __init__(self, layer: nn.Linear, *args: Any, **kwargs: Any) -> None:
        super().__init__(layer, *args, **kwargs)
        self.in_features, self.out_features = layer.in_features, layer.out_features

    def forward(self, x: Tensor) -> Tensor:
        return linear(self.input(x), self.weight, self.bias)


class QuantConv2d(QuantLayer):
    """Quantised nn.Conv2d (zero padding)."""

    def __init__(self, layer: nn.Conv2d, *args: Any, **kwargs: Any) -> None:
        super().__init__(layer, *args, **kwargs)
        self.geometry = (layer.stride, layer.padding, layer.dilation, layer.groups)

    def forward(self, x: Tensor) -> Tensor:
        stride, padding, dilation, groups = self.geometry
        x = self.input(x)
        return conv2d(x, self.weight, self.bias, stride, padding, dilation, groups)


class QuantMatmul(nn.Module):
    """a @ b with a quantiser on each operand; Identity on both is the plain product."""

    def __init__(self, a: nn.Module | None = None, b: nn.Module | None = None) -> None:
        super().__init__()
        self.a = nn.Identity() if a is None else a
        self.b = nn.Identity() if b is None else b

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.a(a) @ self.b(b)


def quantized_layer(layer: nn.Module, *args: Any, **kwargs: Any) -> QuantLayer:
    """`QuantLinear` or `QuantConv2d`, matching the float layer; arguments as for `QuantLayer`."""
    if isinstance(layer, nn.Linear):
        return QuantLinear(layer, *args, **kwargs)
    if isinstance(layer, nn.Conv2d) and layer.padding_mode == "zeros":
        return QuantConv2d(layer, *args, **kwargs)
    raise TypeError(f"no quantised form of {layer}")


def _like(template: Tensor | nn.Module, values: Tensor) -> Tensor:
    """`values` in the memory layout of `template` (channels last), which decides the kernel."""
    assert isinstance(template, Tensor)
    return torch.empty_like(template, requires_grad=False).copy_(values)
