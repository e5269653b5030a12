"""The adapter of timm's ResNet family."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tta_bench.api import Model, Norm

PROMPT_SIDE = 7


class ResNetModel(Model):
    """Hidden state: feature map; layer features: the pooled outputs of the four stages."""

    family = "resnet"
    tokens = False

    def __init__(self, net: nn.Module, **facts: Any) -> None:
        super().__init__(net.to(memory_format=torch.channels_last), **facts)

    @property
    def stages(self) -> list[nn.Sequential]:
        """layer1 … layer4."""
        return [self.net.layer1, self.net.layer2, self.net.layer3, self.net.layer4]

    @property
    def blocks(self) -> Sequence[Any]:
        return [block for stage in self.stages for block in stage]

    @property
    def classifier(self) -> nn.Linear:
        return self.net.fc

    def stem(self, x: Tensor, prompt: Tensor | None = None) -> Tensor:
        x = self.normalise(x).contiguous(memory_format=torch.channels_last)
        if prompt is not None:
            x = x + F.conv2d(x, prompt, padding=PROMPT_SIDE // 2)
        return self.net.conv1(x)

    def enter(self, embedded: Tensor) -> Tensor:
        return self.net.maxpool(self.net.act1(self.net.bn1(embedded)))

    def pool(self, hidden: Tensor) -> Tensor:
        return self.net.global_pool(hidden)

    def probe(self, block: int, hidden: Tensor) -> Tensor | None:
        stage_ends = [n - 1 for n in accumulate(self.stage_sizes())]
        return hidden.mean((2, 3)) if block in stage_ends else None

    def stage_sizes(self) -> list[int]:
        return [len(stage) for stage in self.stages]

    def closes_branch(self, norm: Norm) -> bool:
        """The branch's last norm (bn3, or bn2 of a basic block) and that of a downsampling shortcut."""
        block = self.blocks[norm.block]
        inner = [block.bn1, block.bn2] if hasattr(block, "bn3") else [block.bn1]
        return not any(norm.module is module for module in inner)

    def stem_samples(self, embedded: Tensor) -> Tensor:
        return embedded.permute(0, 2, 3, 1).flatten(0, 2)

    def new_prompt(self, count: int, rng: torch.Generator) -> Tensor:
        """One 7×7 kernel, 3 → 3 channels, Kaiming-normal by fan-out; `count` is for tokens."""
        std = (2 / (3 * PROMPT_SIDE**2)) ** 0.5
        return torch.randn(3, 3, PROMPT_SIDE, PROMPT_SIDE, generator=rng) * std
