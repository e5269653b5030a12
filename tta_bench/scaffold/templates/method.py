"""A test-time adaptation method. The idea is a starting point: put your own in its place, the shape stays."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tta_bench.api import Fraction, Method, Model, NonNegative, Source


@dataclass
class PluginClass(Method):
    """Take a running estimate of the classes' frequencies out of the logits.

    A model that meets another domain tends to prefer a few classes. If the stream has all of them equally
    often, the log of how often each was predicted so far is that preference, and can be subtracted.
    """

    # Fields are hyper-parameters: keys of the YAML, and part of a result's identity. Their types say what
    # they may hold: Fraction is 0 to 1, Positive more than 0, Annotated[int, Ge(2)] a range of your own.
    momentum: Fraction = 0.1
    strength: NonNegative = 1.0

    consumes = "features"  # what `step` gets: features of one pass that all methods share, or "images"
    memory = "stream"  # what a prediction depends on: its image ("none"), its "batch", or the "stream"
    summary = "a running class prior taken out of the logits"

    def setup(self, model: Model, source: Source) -> None:
        self.model = model
        self.reset()

    def reset(self) -> None:
        classes = self.model.num_classes
        self.prior = self.model.head_weight.new_full((classes,), 1 / classes)

    def step(self, z: Tensor) -> Tensor:
        logits = self.model.head(z)
        batch = logits.softmax(1).mean(0)
        if batch.isfinite().all():
            self.prior = (1 - self.momentum) * self.prior + self.momentum * batch
        else:  # one broken image must not spoil the rest of the stream; records count what was left out
            self.skip("the mean prediction of a batch was not finite")
        return logits - self.strength * self.prior.clamp_min(1e-6).log()

    def state_dict(self) -> dict[str, Any]:
        return {"prior": self.prior}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.prior = state["prior"]
