"""TENT: entropy minimisation over normalisation parameters (Wang et al., 2021)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from torch import Tensor

from tta_bench.api import Choice, Log, Momentum, NonNegative, Target, spaces
from tta_bench_methods._shared.gradient import FirstPassMethod, entropy
from tta_bench_methods._shared.losses import (
    generalised_cross_entropy,
    information_maximisation,
    pseudo_label,
)

LOSSES: dict[str, Callable[[Tensor], Tensor | None]] = {
    "entropy": lambda logits: entropy(logits).mean(),
    "im": information_maximisation,
    "pl": pseudo_label,
    "gce": generalised_cross_entropy,
}


@dataclass
class Tent(FirstPassMethod):
    """One gradient step per batch on the mean entropy; predict with the parameters before it.

    `loss` replaces the entropy. im: entropy minus that of the mean prediction · pl: cross-entropy to own
    labels of more than 0.9 probability · gce: generalised cross-entropy to own labels.
    """

    lr: NonNegative = 1e-3  # learning rate
    momentum: Momentum = 0.9  # momentum of SGD
    nesterov: bool = False  # Nesterov momentum
    loss: Literal["entropy", "im", "pl", "gce"] = "entropy"  # what a step minimises
    weight_decay: NonNegative = 0.0  # decay of the trained parameters; 1e-4 is published for im

    added = MappingProxyType({"loss": "entropy", "weight_decay": 0.0})
    summary = "entropy descent on norm layers"
    search_space = spaces(lr=Log(1e-5, 1e-2), momentum=Choice(0.0, 0.9))

    @classmethod
    def presets(cls, target: Target) -> dict[str, Any]:
        return {"lr": 2.5e-4} if target.family == "resnet" else {}

    def adapt(self, x: Tensor) -> Tensor:
        logits = self.model(x)
        loss = LOSSES[self.loss](logits)
        if loss is not None:
            self.descend(loss)
        return logits
