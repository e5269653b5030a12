"""NaN on integer engines: codes cannot hold it, so it is taken from a layer's input to its output.

Without that, a method that diverged would still get finite logits, and no update would be skipped.
"""

from __future__ import annotations

import torch
from torch import Tensor


def nan_rows_(output: Tensor, x: Tensor) -> Tensor:
    """The output of a linear layer, with NaN in the rows whose input has NaN."""
    output[x.isnan().any(-1)] = torch.nan
    return output


def nan_images_(output: Tensor, x: Tensor) -> Tensor:
    """The output of a convolution or of several layers, with NaN for the images whose input has NaN."""
    output[x.isnan().flatten(1).any(1)] = torch.nan
    return output
