"""The networks of CIFAR, for which papers on continual adaptation publish settings of their own."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from tta_bench.api import Target

# The number of classes of the data for which settings are published with each network.
CLASSES = MappingProxyType({"wrn-28-10": 10, "wrn-40-2": 10, "resnext-29": 100})


def cifar_classes(target: Target) -> int:
    """10 or 100 for a network of CIFAR, 0 for any other."""
    return CLASSES.get(target.model, 0)


def adam_on_cifar(target: Target) -> dict[str, Any]:
    """Adam with a learning rate of 1e-3 for networks of CIFAR, which most methods have there."""
    return {"optimizer": "adam", "lr": 1e-3} if cifar_classes(target) else {}
