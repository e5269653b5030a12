"""RBN: batch norm by a moving average that starts at the source (Yuan et al., 2023)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tta_bench_methods._shared.norms.running import RunningNorm


class RobustNorm(RunningNorm):
    """Normalises by the running statistics; while `learning`, the batch is first taken into them, and a
    second pass goes on from the first.

    Gradients pass through the part of the batch. The variance is the biased one.
    """

    proposed: Tensor

    def __init__(self, norm: nn.BatchNorm2d, momentum: float) -> None:
        super().__init__(norm)
        self.momentum = momentum  # weight of the batch
        self.learning = False

    def forward(self, x: Tensor) -> Tensor:
        if not self.learning:
            return self.normalised(x, self.running)
        variance, mean = torch.var_mean(x, (0, 2, 3), correction=0)
        used = self.proposed.lerp(torch.stack([mean, variance]), self.momentum)
        self.proposed = used.detach()
        norm = self.norm
        scale = norm.weight * (used[1] + norm.eps).rsqrt()
        return (x - used[0].view(-1, 1, 1)) * scale.view(-1, 1, 1) + norm.bias.view(-1, 1, 1)
