"""LayerNorm reparametrisation (RepQ-ViT): per-channel input quantisers become a per-tensor one.

With per-channel (s_c, z_c), s̃ = mean s, z̃ = round(mean z), r = s/s̃ and b = s̃(z̃ − z):
x/s_c + z_c = (x/r − b)/s̃ + z̃. So the norm returns x/r − b, and the next layer compensates:
γ ← γ/r, β ← β/r − b, W ← W·diag(r), bias ← bias + W_new·b. The float function does not change.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tta_bench.api import Model
from tta_bench_quantizers._core.sites import layer_sites


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
        """The norm's new output."""
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
    """The norm whose only reader is this site: norm1 for qkv, norm2 for fc1."""
    for layer, norm in ((".attn.qkv", ".norm1"), (".mlp.fc1", ".norm2")):
        if site.endswith(layer):
            return site.removesuffix(layer) + norm
    return None


def unsupported_norms(model: Model) -> str | None:
    """Why the norms before qkv and fc1 cannot be reparametrised; None if they can."""
    for site in layer_sites(model):
        name = norm_before(site)
        if name is None:
            continue
        parent = model.net.get_submodule(site.rpartition(".")[0])
        norm = dict(model.net.named_modules()).get(name)
        affine = isinstance(norm, nn.LayerNorm) and norm.weight is not None and norm.bias is not None
        if not affine or getattr(parent, "gate", None) is not None:
            return f"needs an affine LayerNorm that feeds {site} alone, and {model.name} has none"
    return None
