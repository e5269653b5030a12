"""The adapter of Vision Mamba."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tta_bench.api import Model


class VimModel(Model):
    """Hidden state: tokens [B, T, d] with the class token in their middle; layer feature: that token
    as the next block's norm sees it. Prompts stand right after it, so its position never changes."""

    family = "vim"

    @property
    def blocks(self) -> Sequence[Any]:
        return self.net.layers

    @property
    def classifier(self) -> nn.Linear:
        return self.net.head

    def stem(self, x: Tensor, prompt: Tensor | None = None) -> Tensor:
        tokens = self.net.embed(self.normalise(x))
        if prompt is None:
            return tokens
        at = self.net.cls_index + 1
        rows = prompt.expand(len(tokens), -1, -1)
        return torch.cat([tokens[:, :at], rows, tokens[:, at:]], dim=1)

    def enter(self, embedded: Tensor) -> Tensor:
        return embedded

    def pool(self, hidden: Tensor) -> Tensor:
        return self.net.norm_f(hidden[:, self.net.cls_index])

    def probe(self, block: int, hidden: Tensor) -> Tensor:
        last = block == len(self.blocks) - 1
        norm = self.net.norm_f if last else self.blocks[block + 1].norm
        return norm(hidden[:, self.net.cls_index])

    def stem_samples(self, embedded: Tensor) -> Tensor:
        at = self.net.cls_index
        return torch.cat([embedded[:, :at], embedded[:, at + 1 :]], dim=1).flatten(0, 1)

    def new_prompt(self, count: int, rng: torch.Generator) -> Tensor:
        """Uniform within the Xavier bound of a patch, as for the vision transformer."""
        weight = self.net.patch_embed.proj.weight
        bound = math.sqrt(6 / (weight[0].numel() + len(weight)))
        return (torch.rand(count, len(weight), generator=rng) * 2 - 1) * bound
