"""LayerNorm reparametrisation (RepQ-ViT): per-channel input quantisers become a per-tensor one.

With per-channel (s_c, z_c), s̃ = mean s, z̃ = round(mean z), r = s/s̃ and b = s̃(z̃ − z):
x/s_c + z_c = (x/r − b)/s̃ + z̃. So the norm is made to give x/r − b, the next layer takes it back:
γ ← γ/r, β ← β/r − b, W ← W·diag(r), bias ← bias + W_new·b. The float function does not change.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Reparametrization:
    """r and b, [C] each."""

    r: Tensor
    b: Tensor

    @classmethod
    def of(cls, scale: Tensor, zero: Tensor) -> Reparametrization:
        """From per-channel scales and zero points [C]."""
        mean_scale, mean_zero = scale.mean(), zero.float().mean().round()
        return cls(scale / mean_scale, mean_scale * (mean_zero - zero))

    def rows(self, x: Tensor) -> Tensor:
        """What the norm gives instead of x."""
        return x / self.r - self.b

    def norm(self, norm: nn.Module) -> dict[str, Tensor]:
        """New γ and β."""
        gamma, beta = norm.get_parameter("weight"), norm.get_parameter("bias")
        return {"weight": gamma / self.r, "bias": beta / self.r - self.b}

    def layer(self, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        """New weight and bias."""
        weight = weight * self.r
        shift = weight @ self.b
        return weight, shift if bias is None else bias + shift


@torch.no_grad()
def set_norm_(norm: nn.Module, weight: Tensor, bias: Tensor) -> None:
    """Put new γ and β into a norm, which stays the same module."""
    norm.get_parameter("weight").copy_(weight)
    norm.get_parameter("bias").copy_(bias)


def norm_before(site: str) -> str | None:
    """The norm that feeds a site alone: norm1 for qkv, norm2 for fc1."""
    for layer, norm in ((".attn.qkv", ".norm1"), (".mlp.fc1", ".norm2")):
        if site.endswith(layer):
            return site.removesuffix(layer) + norm
    return None
