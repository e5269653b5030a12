"""All values that a tensor took, in bounded memory: a fine histogram with exact minimum and maximum.

The width of a bin is a power of two and its edges are multiples of it: for a larger value, pairs of bins are
merged, which moves no value across an edge. Every bin keeps the count and the mean of its values. They give
the squared error of a quantiser up to a constant (the spread within bins) if a whole bin is rounded to one
level. Only the few bins that contain a boundary between levels are approximated.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

HALF = 1 << 17  # bins on each side of zero: about 500 per level at 8 bits if the whole range is used
LEAST_EXPONENT = -126 + 17  # smallest exponent whose bins are still normal numbers


class ValueHistogram:
    """Minimum, maximum and histogram of the values seen."""

    def __init__(self) -> None:
        self.low, self.high = torch.tensor(torch.inf), torch.tensor(-torch.inf)
        self.exponent = LEAST_EXPONENT  # all magnitudes are below 2**exponent
        self.counts = torch.zeros(2 * HALF, dtype=torch.float64)
        self.sums = torch.zeros(2 * HALF, dtype=torch.float64)

    def see(self, x: Tensor) -> None:
        """Add the values of one batch."""
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
        """Means and counts of the bins that are not empty, in ascending order."""
        held = self.counts > 0
        return self.sums[held] / self.counts[held], self.counts[held]

    def _widen_(self, largest: float) -> None:
        """Merge bins until values of this magnitude fit."""
        exponent = math.frexp(largest)[1] if largest else LEAST_EXPONENT
        for _ in range(exponent - self.exponent):
            if not self.counts.any():
                break
            self.counts, self.sums = _merged(self.counts), _merged(self.sums)
        self.exponent = max(self.exponent, exponent)


def _merged(bins: Tensor) -> Tensor:
    """Bins of twice the width; zero stays in the middle."""
    return pad(bins.view(-1, 2).sum(1), (HALF // 2, HALF // 2))
