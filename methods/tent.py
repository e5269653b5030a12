"""TENT: entropy minimisation over normalisation parameters (Wang et al., 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tta_bench.api import Choice, Log, Momentum, NonNegative, Target, spaces
from tta_bench_methods._shared.gradient import GradientMethod, entropy


@dataclass
class Tent(GradientMethod):
    """One gradient step per batch on the mean entropy; predict with the parameters before it."""

    lr: NonNegative = 1e-3  # learning rate
    momentum: Momentum = 0.9  # momentum of SGD
    nesterov: bool = False  # Nesterov momentum

    summary = "entropy descent on norm layers"
    search_space = spaces(lr=Log(1e-5, 1e-2), momentum=Choice(0.0, 0.9))

    @classmethod
    def presets(cls, target: Target) -> dict[str, Any]:
        return {"lr": 2.5e-4} if target.family == "resnet" else {}

    def adapt(self, x: Tensor) -> Tensor:
        logits = self.model(x)
        self.descend(entropy(logits).mean())
        return logits
