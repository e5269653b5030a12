"""Convert uint8 images to the tensors that models read."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def to_tensor(images: np.ndarray) -> Tensor:
    """Images uint8 [N, H, W, 3] as floats [N, 3, H, W] in [0, 1]."""
    # NumPy, because torch's thread pool takes a hundred times as long for a batch when all cores are busy.
    floats = np.ascontiguousarray(images.transpose(0, 3, 1, 2), dtype=np.float32)
    floats /= 255
    return torch.from_numpy(floats)
