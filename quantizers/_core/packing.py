"""The size of a quantised network with packed codes: a count, not a file format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from torch import nn

from tta_bench.api import Model

FLOAT_BYTES = 4


@dataclass(frozen=True)
class Packing:
    """Storage of one site: bits per weight, number of float scales, bits of all integer parameters."""

    weight_bits: int = 0  # 0: a site without weights (a matrix product)
    scales: int = 0
    zero_bits: int = 0


def packed_bytes(model: Model, sites: Mapping[str, Packing]) -> int:
    """Bytes of codes and zero points at their bit-widths, and of scales and everything else in FP32."""
    weights = {name: site_weight_count(model, name) for name, p in sites.items() if p.weight_bits}
    floats = float_count(model.net) - sum(weights.values())
    codes = sum(ceil(count * sites[name].weight_bits / 8) for name, count in weights.items())
    return floats * FLOAT_BYTES + codes + sum(parameter_bytes(p) for p in sites.values())


def parameter_bytes(packing: Packing) -> int:
    """Bytes of one site's scales and zero points."""
    return packing.scales * FLOAT_BYTES + ceil(packing.zero_bits / 8)


def site_weight_count(model: Model, site: str) -> int:
    """Weights at one site."""
    return model.net.get_submodule(site).weight.numel()  # type: ignore[operator,union-attr]


def float_count(net: nn.Module) -> int:
    """Number of floating-point parameters and buffers."""
    tensors = [*net.parameters(), *(b for _, b in net.named_buffers())]
    return sum(t.numel() for t in tensors if t.is_floating_point())
