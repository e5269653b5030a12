"""NEO: features centred at the mean of the stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tta_bench.api import Choice, Fraction, Log, Method, Model, Source, spaces


@dataclass
class Neo(Method):
    """Subtract the mean of all features so far, the current batch included, before the classifier.

    `continual: true` replaces that mean by an exponential moving average that starts at zero.
    """

    continual: bool = False  # a moving average that starts at zero instead of the mean over all images
    alpha: Fraction = 0.1  # weight of the new batch in the moving average; read only if `continual`

    consumes = "features"
    memory = "stream"
    summary = "features centred at the mean of the stream"
    search_space = spaces(continual=Choice(False, True), alpha=Log(0.01, 1.0))
    needs = "linear head"

    def setup(self, model: Model, source: Source) -> None:
        self.model = model
        self.reset()

    def reset(self) -> None:
        self.centre = self.model.head_weight.new_zeros(self.model.head_weight.shape[1])
        self.images = 0

    def step(self, z: Tensor) -> Tensor:
        mean = z.mean(0)
        if mean.isfinite().all():
            self.images += len(z)
            weight = self.alpha if self.continual else len(z) / self.images
            self.centre = self.centre.lerp(mean, weight)
        else:
            self.skip("the mean of a batch was not finite")
        return self.model.head(z - self.centre)

    def state_dict(self) -> dict[str, Any]:
        return {"centre": self.centre, "images": self.images}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.centre, self.images = state["centre"], state["images"]
