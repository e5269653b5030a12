"""timm's attention with its two matrix products as modules, so that they can be quantised."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from tta_bench.api import Model
from tta_bench_quantizers._core.activations import ActivationQuantizer
from tta_bench_quantizers._core.layers import QuantMatmul
from tta_bench_quantizers._core.sites import replace_module


class DecomposedAttention(nn.Module):
    """timm's Attention: the same function and child modules, plus `matmul1` and `matmul2`.

    matmul1 is q·kᵀ before the 1/√d scale, matmul2 is attention·v. Nothing depends on the number of
    tokens, so prompts may be inserted.
    """

    def __init__(self, attn: Any) -> None:
        super().__init__()
        self.num_heads: int = attn.num_heads
        self.scale: float = attn.scale
        self.qkv: nn.Module = attn.qkv
        self.q_norm: nn.Module = attn.q_norm
        self.k_norm: nn.Module = attn.k_norm
        self.attn_drop: nn.Module = attn.attn_drop
        self.norm: nn.Module = getattr(attn, "norm", nn.Identity())  # not in every timm
        self.gate: nn.Module | None = getattr(attn, "gate", None)
        self.proj: nn.Module = attn.proj
        self.proj_drop: nn.Module = attn.proj_drop
        self.matmul1 = QuantMatmul()
        self.matmul2 = QuantMatmul()

    def forward(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        if attn_mask is not None or is_causal:
            raise NotImplementedError("masked attention cannot be quantised")
        batch, tokens, _ = x.shape
        qkv = self.qkv(x).view(batch, tokens, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        scores = self.matmul1(self.q_norm(q), self.k_norm(k).transpose(-2, -1))
        attention = self.attn_drop(self._softmax(scores))
        out = self.norm(self.matmul2(attention, v).transpose(1, 2).flatten(2))
        if self.gate is not None:
            out = out * self.gate(x).sigmoid()
        return self.proj_drop(self.proj(out))

    def _softmax(self, scores: Tensor) -> Tensor:
        """Softmax of the scaled scores, which stay unchanged in calibration, where hooks may hold them."""
        quantised = isinstance(self.matmul1.a, ActivationQuantizer) and not scores.requires_grad
        return (scores.mul_(self.scale) if quantised else scores * self.scale).softmax(dim=-1)


def is_attention(module: nn.Module) -> bool:
    """Whether this is a timm self-attention with one qkv projection."""
    return hasattr(module, "qkv") and hasattr(module, "num_heads")


def unsupported_without_attention(model: Model) -> str | None:
    """Why a scheme for transformers cannot quantise this model; None if it can."""
    missing = []
    if not any(is_attention(m) for m in model.net.modules()):
        missing.append("attention")
    if not any(isinstance(m, nn.GELU) for m in model.net.modules()):
        missing.append("GELU")
    if not missing:
        return None
    what = "none" if len(missing) == 2 else f"no {missing[0]}"
    return f"quantises attention and GELU sites, and {model.name} has {what}"


def decompose_attention_(net: nn.Module) -> None:
    """Replace every timm attention; its child modules stay the same and keep their names."""
    for name, module in list(net.named_modules()):
        if is_attention(module) and not isinstance(module, DecomposedAttention):
            replace_module(net, name, DecomposedAttention(module))
