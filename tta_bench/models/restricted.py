"""A model that knows only some of its classes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tta_bench.api import Model


def restrict_classes_(model: Model, classes: np.ndarray) -> None:
    """Take all but these classes out of a model: out of its logits, and out of what T3A starts from.

    Entropies, margins and prototypes then count these classes alone, as FOA's release has it for the 200
    of ImageNet-R. The classifier still computes all logits, so a quantised one stays as calibrated.
    """
    model.register_buffer("kept", torch.from_numpy(classes).long(), persistent=False)
    model.head_weight, model.head_bias = model.head_weight[classes], model.head_bias[classes]
    model.num_classes = len(classes)
    cls = type(model)
    model.__class__ = type(cls.__name__, (_Restricted, cls), {})  # its copies are restricted, too


class _Restricted(Model):
    """Mixed into an adapter's class: the logits of the kept classes."""

    kept: Tensor

    def head(self, z: Tensor) -> Tensor:
        return super().head(z)[:, self.kept]  # type: ignore[safe-super]  # an adapter's comes next
