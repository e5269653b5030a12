"""The sites of a vision transformer: every layer, and the two products of every attention."""

from __future__ import annotations

from typing import Literal, TypeAlias

from torch import nn

from tta_bench.api import Model
from tta_bench_quantizers._core.attention import is_attention
from tta_bench_quantizers._core.sites import layer_sites

SiteKind: TypeAlias = Literal["conv", "qkv", "linear", "gelu", "scores", "values"]


def vit_sites(model: Model) -> dict[str, SiteKind]:
    """Kinds by site: 6 per block, the patch embedding and the head (74 on ViT-B).

    `gelu` is a linear layer that reads GELU's output, `scores` is q·kᵀ, `values` attention·v.
    """
    sites = {name: _kind(model.net, name, layer) for name, layer in layer_sites(model).items()}
    for name, module in model.net.named_modules():
        if is_attention(module):
            sites |= {f"{name}.matmul1": "scores", f"{name}.matmul2": "values"}
    return sites


def _kind(net: nn.Module, name: str, layer: nn.Module) -> SiteKind:
    if isinstance(layer, nn.Conv2d):
        return "conv"
    parent, _, child = name.rpartition(".")
    if child == "qkv":
        return "qkv"
    act = getattr(net.get_submodule(parent), "act", None)
    return "gelu" if child == "fc2" and isinstance(act, nn.GELU) else "linear"


def head_count(model: Model, site: str) -> int:
    """Attention heads at a matrix product's site."""
    return int(model.net.get_submodule(site.rpartition(".")[0]).num_heads)  # type: ignore[arg-type]
