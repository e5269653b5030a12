"""Activation shifting, one of the two parts of FOA, by itself (Niu et al., 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from torch import Tensor

from tta_bench.api import Interval, Log, Method, Model, NonNegative, Source, Uniform, spaces
from tta_bench_methods._shared.alignment import ActivationShift, feature_mean, shifted


@dataclass
class Shift(Method):
    """Move features by the difference of the source mean and a running mean of the stream."""

    momentum: Annotated[float, Interval(gt=0, le=1)] = 0.1  # weight of the new batch in the running mean
    strength: NonNegative = 1.0  # γ of the paper

    version = "2"
    consumes = "features"
    memory = "stream"
    summary = "features moved back to the source mean"
    search_space = spaces(momentum=Log(0.01, 1.0), strength=Uniform(0.0, 1.5))
    needs = "clean images"

    def setup(self, model: Model, source: Source) -> None:
        self.model = model
        self.source_mean = source.feature_mean(model)
        self.reset()

    def reset(self) -> None:
        self.history = ActivationShift(self.source_mean, self.momentum)

    def step(self, z: Tensor) -> Tensor:
        offset = self.history.offset()
        if not self.history.update_(feature_mean(z)):
            self.skip("the mean of a batch was not finite")
        return self.model.head(shifted(z, None if offset is None else self.strength * offset))

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self.history.mean}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.history.mean = state["mean"]
