"""Vision Mamba (Zhu et al., 2024) in plain PyTorch, with the official parameter names.

Bidirectional "bimamba v2" mixers, class token in the middle of the sequence, learnt absolute
positions, RMSNorm without bias. There are no CUDA kernels: the same code trains, adapts and counts bytes.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tta_bench.models.selective_scan import selective_scan


class MambaMixer(nn.Module):
    """Bidirectional selective state-space mixer; `*_b` parameters read the sequence backwards."""

    A_log: Tensor
    A_b_log: Tensor
    D: Tensor
    D_b: Tensor

    def __init__(self, dim: int, d_state: int, d_conv: int, expand: int) -> None:
        super().__init__()
        inner = expand * dim
        self.inner, self.d_state, self.dt_rank = inner, d_state, math.ceil(dim / 16)
        self.in_proj = nn.Linear(dim, 2 * inner, bias=False)
        for suffix in ("", "_b"):
            conv = nn.Conv1d(inner, inner, d_conv, groups=inner, padding=d_conv - 1)
            x_proj = nn.Linear(inner, self.dt_rank + 2 * d_state, bias=False)
            dt_proj = nn.Linear(self.dt_rank, inner)
            _init_dt_(dt_proj)
            self.add_module(f"conv1d{suffix}", conv)
            self.add_module(f"x_proj{suffix}", x_proj)
            self.add_module(f"dt_proj{suffix}", dt_proj)
            log_a = torch.log(torch.arange(1.0, d_state + 1)).repeat(inner, 1)
            self.register_parameter(f"A{suffix}_log", nn.Parameter(log_a))
            self.register_parameter(f"D{suffix}", nn.Parameter(torch.ones(inner)))
        self.out_proj = nn.Linear(inner, dim, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        # Time first: a step of the scan, a shift of the convolution and a flip are all contiguous.
        x, z = self.in_proj(tokens.transpose(0, 1)).chunk(2, dim=-1)
        u = F.silu(torch.stack([self._conv(x, ""), self._conv(x.flip(0), "_b")], dim=1))
        forward, backward = self._gates(u[:, 0], ""), self._gates(u[:, 1], "_b")
        delta, b, c = (torch.stack(pair, dim=1) for pair in zip(forward, backward, strict=True))
        a = -torch.exp(torch.stack([self.A_log, self.A_b_log]))
        skip = torch.stack([self.D, self.D_b]).unsqueeze(1)
        y = torch.addcmul(selective_scan(u, F.softplus(delta), a, b, c), u, skip)
        # Gating commutes with the flip, so both directions are added before it.
        y = (y[:, 0] + y[:, 1].flip(0)) * F.silu(z)
        return self.out_proj(y / 2).transpose(0, 1)

    def _conv(self, x: Tensor, suffix: str) -> Tensor:
        """Causal depthwise convolution over time, as shifted multiply-adds on [L, B, D]."""
        conv: Any = self.get_submodule(f"conv1d{suffix}")
        taps = conv.weight.squeeze(1).unbind(1)  # the last tap is the current step
        length = len(x)
        padded = F.pad(x, (0, 0, 0, 0, len(taps) - 1, 0))
        out: Tensor = conv.bias
        for k, tap in enumerate(taps):
            out = torch.addcmul(out, padded[k : k + length], tap)
        return out

    def _gates(self, u: Tensor, suffix: str) -> tuple[Tensor, Tensor, Tensor]:
        """(Δ before softplus, B, C) of one direction."""
        sizes = [self.dt_rank, self.d_state, self.d_state]
        dt, b, c = self.get_submodule(f"x_proj{suffix}")(u).split(sizes, dim=-1)
        return self.get_submodule(f"dt_proj{suffix}")(dt), b, c


def _init_dt_(dt_proj: nn.Linear, low: float = 1e-3, high: float = 0.1) -> None:
    """Make softplus(bias) log-uniform in [low, high], as Mamba's authors do."""
    nn.init.uniform_(dt_proj.weight, -(dt_proj.in_features**-0.5), dt_proj.in_features**-0.5)
    span = math.log(high) - math.log(low)
    dt = torch.exp(torch.rand(dt_proj.out_features) * span + math.log(low)).clamp_min(1e-4)
    with torch.no_grad():
        dt_proj.bias.copy_(dt + torch.log(-torch.expm1(-dt)))


class MambaBlock(nn.Module):
    """Pre-norm residual block in Vim's order: the residual is added before the norm."""

    def __init__(self, dim: int, d_state: int, d_conv: int, expand: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(dim, eps=1e-5)
        self.mixer = MambaMixer(dim, d_state, d_conv, expand)

    def forward(self, residual: Tensor) -> Tensor:
        return residual + self.mixer(self.norm(residual))


class PatchEmbed(nn.Module):
    """Non-overlapping patches to tokens."""

    def __init__(self, patch_size: int, in_chans: int, dim: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(in_chans, dim, patch_size, patch_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(x).flatten(2).transpose(1, 2)


class VisionMamba(nn.Module):
    """Vim with the class token in the middle: the classifier reads that token after `norm_f`."""

    def __init__(
        self,
        img_size: int = 224,
        patch_size: int = 16,
        embed_dim: int = 384,
        depth: int = 24,
        d_state: int = 16,
        d_conv: int = 4,
        expand: int = 2,
        num_classes: int = 1000,
        in_chans: int = 3,
    ) -> None:
        super().__init__()
        patches = (img_size // patch_size) ** 2
        self.num_classes = num_classes
        self.cls_index = patches // 2
        self.patch_embed = PatchEmbed(patch_size, in_chans, embed_dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, embed_dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, patches + 1, embed_dim))
        self.layers = nn.ModuleList(MambaBlock(embed_dim, d_state, d_conv, expand) for _ in range(depth))
        self.norm_f = nn.RMSNorm(embed_dim, eps=1e-5)
        self.head = nn.Linear(embed_dim, num_classes)
        self._init_weights()

    def _init_weights(self) -> None:
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        nn.init.trunc_normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)
        for block in self.layers:  # keeps the variance of the residual stream constant over depth
            out: Any = block.get_submodule("mixer.out_proj")
            out.weight.data.div_(math.sqrt(len(self.layers)))

    def embed(self, x: Tensor) -> Tensor:
        """Tokens with the class token inserted and positions added."""
        tokens = self.patch_embed(x)
        cls = self.cls_token.expand(len(x), -1, -1)
        left, right = tokens[:, : self.cls_index], tokens[:, self.cls_index :]
        return torch.cat([left, cls, right], dim=1) + self.pos_embed

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x)
        for block in self.layers:
            tokens = block(tokens)
        return self.head(self.norm_f(tokens[:, self.cls_index]))
