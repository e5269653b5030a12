"""IABN: batch norm that corrects each image whose own statistics are too unlikely (Gong et al., 2022)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tta_bench_methods._shared.moments import mean_and_variance
from tta_bench_methods._shared.norms.running import RunningNorm


class InstanceAwareNorm(RunningNorm):
    """Mean and variance of each image and channel replace the running ones as far as they differ by more
    than k standard errors. While `learning`, the batch's statistics are used and taken into `running`."""

    def __init__(self, norm: nn.BatchNorm2d, k: float, momentum: float) -> None:
        super().__init__(norm)
        self.k, self.momentum = k, momentum
        self.learning = False

    def forward(self, x: Tensor) -> Tensor:
        used = self.running
        if self.learning:
            used = torch.stack(mean_and_variance(x, (0, 2, 3)))
            self.proposed = self.running.lerp(used, self.momentum)
        if x[0, 0].numel() < 2:  # one position has no variance
            return self.normalised(x, used)
        return self._corrected(x, *used)

    def _corrected(self, x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """Normalise each image by statistics between these and its own."""
        norm, positions = self.norm, x[0, 0].numel()
        own_variance, own_mean = torch.var_mean(x, (2, 3))
        stable = variance + norm.eps
        mean = mean + shrunk(own_mean - mean, self.k * (stable / positions).sqrt())
        error = stable * (2 / (positions - 1)) ** 0.5
        variance = (variance + shrunk(own_variance - variance, self.k * error)).clamp_min(0)
        scale = norm.weight * (variance + norm.eps).rsqrt()
        return (x - mean[..., None, None]) * scale[..., None, None] + norm.bias.view(-1, 1, 1)


def shrunk(difference: Tensor, threshold: Tensor) -> Tensor:
    """Differences brought closer to zero by the threshold (soft shrinkage)."""
    return difference.sign() * (difference.abs() - threshold).relu()
