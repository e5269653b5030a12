"""All values that a tensor took, in bounded memory: a fine histogram whose ends are exact.

The width of a bin is a power of two and its edges are multiples of it: when a larger value comes, pairs of
bins are merged, and no value changes sides. Every bin keeps the count and the mean of its values, which give
the squared error of a quantiser up to a constant (the spread within bins), wherever a whole bin goes to one
level. Only the few bins that a boundary between levels cuts are approximated.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

HALF = 1 << 17  # bins on each side of zero: at 8 bits some 500 to a level when the whole range is used
LEAST_EXPONENT = -126 + 17  # of a range whose bins are still normal numbers


class ValueHistogram:
    """Least and greatest value seen, and how often values in between were seen."""

    def __init__(self) -> None:
        self.low, self.high = torch.tensor(torch.inf), torch.tensor(-torch.inf)
        self.exponent = LEAST_EXPONENT  # all values are below 2**exponent in size
        self.counts = torch.zeros(2 * HALF, dtype=torch.float64)
        self.sums = torch.zeros(2 * HALF, dtype=torch.float64)

    def see(self, x: Tensor) -> None:
        """Take note of one batch."""
        x = x.detach().flatten()
        low, high = torch.aminmax(x)
        if not (low.isfinite() and high.isfinite()):
            raise ValueError("the network has activations that are not finite on the calibration images")
        self.low, self.high = torch.minimum(self.low, low), torch.maximum(self.high, high)
        self._widen_(max(-float(low), float(high)))
        bins = torch.floor(x * 2.0 ** (17 - self.exponent)).add_(HALF).to(torch.int64)
        self.counts += torch.bincount(bins, minlength=2 * HALF)
        self.sums += torch.bincount(bins, x.double(), minlength=2 * HALF)

    def points(self) -> tuple[Tensor, Tensor]:
        """Means of the bins that hold values, in ascending order, and the counts of these values."""
        held = self.counts > 0
        return self.sums[held] / self.counts[held], self.counts[held]

    def _widen_(self, largest: float) -> None:
        """Merge bins until values of this size have a place."""
        exponent = math.frexp(largest)[1] if largest else LEAST_EXPONENT
        for _ in range(exponent - self.exponent):
            if not self.counts.any():
                break
            self.counts, self.sums = _merged(self.counts), _merged(self.sums)
        self.exponent = max(self.exponent, exponent)


def _merged(bins: Tensor) -> Tensor:
    """Twice as wide bins; zero stays in the middle."""
    return pad(bins.view(-1, 2).sum(1), (HALF // 2, HALF // 2))
