"""Plugins whose values are unsound: presets, passes, skipped updates, and data without clean images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from tta_bench.api import Method, Positive, Target
from tta_bench.data.cifar10.mini import Cifar10Mini


@dataclass
class Unsound(Method):
    """Predicts; its presets are out of range, and its passes are not numbers."""

    lr: Positive = 0.1

    def passes(self) -> tuple[int, int]:
        return "K", 0  # type: ignore[return-value]

    @classmethod
    def presets(cls, target: Target) -> dict[str, Any]:
        return {"lr": -1} if target.family == "resnet" else {}

    def step(self, x: Tensor) -> Tensor:
        if not x.isfinite().all():
            self.skipped_updates += 1
        return self.model(x)

    def reset(self) -> None:
        pass


@dataclass
class NoSource(Cifar10Mini):
    """Test images only."""

    def clean_source(self) -> np.ndarray:
        return super().clean_source()[:0]
