"""A model restricted to some of its classes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tta_bench.api import Model


def restrict_classes_(model: Model, classes: np.ndarray) -> None:
    """Restrict a model to these classes: its logits, and the classifier rows from which T3A starts.

    Entropies, margins and prototypes then use only these classes, as in FOA's released code for the 200
    classes of ImageNet-R. The classifier still computes all logits, so its calibration stays valid.
    """
    model.register_buffer("kept", torch.from_numpy(classes).long(), persistent=False)
    model.head_weight, model.head_bias = model.head_weight[classes], model.head_bias[classes]
    model.num_classes = len(classes)
    cls = type(model)
    model.__class__ = type(cls.__name__, (_Restricted, cls), {})  # copies of the model are restricted too


class _Restricted(Model):
    """Mixed into an adapter's class: the logits of the kept classes."""

    kept: Tensor

    def head(self, z: Tensor) -> Tensor:
        return super().head(z)[:, self.kept]
