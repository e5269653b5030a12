"""The adapter of timm's VisionTransformer family (ViT, DeiT)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tta_bench.api import Model


class VitModel(Model):
    """Hidden state: tokens [B, T, d], class token first; layer feature: the class token as the next
    block's first norm sees it (for the last block: the output of the final norm)."""

    family = "vit"

    @property
    def blocks(self) -> Sequence[Any]:
        return self.net.blocks

    @property
    def classifier(self) -> nn.Linear:
        return self.net.head

    def stem(self, x: Tensor, prompt: Tensor | None = None) -> Tensor:
        tokens = self.net._pos_embed(self.net.patch_embed(self.normalise(x)))
        if prompt is None:
            return tokens
        at = self.net.num_prefix_tokens
        rows = prompt.expand(len(tokens), -1, -1)
        return torch.cat([tokens[:, :at], rows, tokens[:, at:]], dim=1)

    def enter(self, embedded: Tensor) -> Tensor:
        return self.net.norm_pre(embedded)

    def pool(self, hidden: Tensor) -> Tensor:
        if self.net.global_pool == "token":  # norms act on each token separately, so one row is enough
            return self.net.fc_norm(self.net.norm(hidden[:, 0]))
        return self.net.forward_head(self.net.norm(hidden), pre_logits=True)

    def probe(self, block: int, hidden: Tensor) -> Tensor:
        last = block == len(self.blocks) - 1
        norm = self.net.norm if last else self.blocks[block + 1].norm1
        return norm(hidden[:, 0])

    def stem_samples(self, embedded: Tensor) -> Tensor:
        return embedded[:, self.net.num_prefix_tokens :].flatten(0, 1)

    def new_prompt(self, count: int, rng: torch.Generator) -> Tensor:
        """Uniform within the Xavier bound of a patch, as in visual prompt tuning."""
        fan_in = self.net.patch_embed.proj.weight[0].numel()
        bound = math.sqrt(6 / (fan_in + self.net.embed_dim))
        return (torch.rand(count, self.net.embed_dim, generator=rng) * 2 - 1) * bound
