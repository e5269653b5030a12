"""Domain shift detection on the statistics of the stem (ZOA, Appendix B), which PACE uses, too."""

from __future__ import annotations

import torch
from torch import Tensor

from tta_bench_methods._shared.moments import mean_and_variance

SMALLEST_VARIANCE = 1e-12  # a constant channel must not divide by zero


class DomainMonitor:
    """Tracks mean and variance of the stem's channels, and detects batches that differ from them."""

    def __init__(self, threshold: float, keep: float, min_batch: int | None) -> None:
        self.threshold = threshold
        self.keep = keep  # weight of the old statistics in their moving average
        self.min_batch = min_batch
        self.domain: Tensor | None = None  # [2, channels]; replaced, never changed in place

    def changed(self, batch: Tensor, batch_size: int) -> bool:
        """Whether a new domain begins with this batch; updates the statistics of the domain."""
        if self.min_batch is None:
            self.min_batch = batch_size
        too_few = batch_size < self.min_batch  # images to recognise a domain by
        if too_few or not batch.isfinite().all():
            return False
        if self.domain is None or symmetric_kl(self.domain, batch).item() > self.threshold:
            known, self.domain = self.domain is not None, batch
            return known
        self.domain = batch.lerp(self.domain, self.keep)
        return False


def channel_statistics(samples: Tensor) -> Tensor:
    """Mean and unbiased variance of every channel of [samples, channels], as two rows."""
    mean, variance = mean_and_variance(samples, (0,))
    return torch.stack([mean, variance.clamp_min(SMALLEST_VARIANCE)])


def symmetric_kl(a: Tensor, b: Tensor) -> Tensor:
    """D: both KL divergences between diagonal Gaussians, averaged over channels.

    The paper prints the KL without its −½, which would put identical domains at D = 1, far above τ.
    """
    gap = (a[0] - b[0]).square()
    return ((a[1] + gap) / (2 * b[1]) + (b[1] + gap) / (2 * a[1]) - 1).mean()
