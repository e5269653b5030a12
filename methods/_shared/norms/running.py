"""BatchNorm2d layers whose statistics a method learns from the stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tta_bench.api import Model


class RunningNorm(nn.Module):
    """Base of such layers. `running` holds mean and variance as two rows, at first those of the source.

    A pass leaves new statistics in `proposed`; `remember_` makes them those of later passes. So a batch
    that is not finite changes no layer, and tensors are replaced, never changed in place.
    """

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        self.norm = norm
        assert norm.running_mean is not None, "the layer has no stored statistics to start from"
        assert norm.running_var is not None
        self.source = torch.stack([norm.running_mean, norm.running_var])
        self.reset()

    def reset(self) -> None:
        """Return to the statistics of the source."""
        self.running = self.proposed = self.source.clone()

    def normalised(self, x: Tensor, statistics: Tensor) -> Tensor:
        """The layer's output with these statistics."""
        norm = self.norm
        return F.batch_norm(x, statistics[0], statistics[1], norm.weight, norm.bias, eps=norm.eps)


Layer = TypeVar("Layer", bound=RunningNorm)


def replace_batch_norms_(model: Model, make: Callable[[nn.BatchNorm2d], Layer]) -> list[Layer]:
    """Put a layer around every BatchNorm2d of the network; return the layers."""
    layers = []
    for name, module in list(model.net.named_modules()):
        if isinstance(module, nn.BatchNorm2d):
            layers.append(make(module))
            model.net.set_submodule(name, layers[-1])
    return layers


def remember_(layers: Sequence[RunningNorm]) -> bool:
    """Keep the proposed statistics of all layers, or of none: what is not finite would stay in them."""
    if not all(layer.proposed.isfinite().all() for layer in layers):
        return False
    for layer in layers:
        layer.running = layer.proposed.detach()
    return True


def without_batch_norm(model: Model) -> str | None:
    """Why methods that replace BatchNorm2d layers cannot run on this model, or None."""
    return None if model.batch_norms() else f"needs BatchNorm2d layers, and {model.name} has none"
