from dataclasses import dataclass

from torch import Tensor

from tta_bench.api import Method, Model, Positive, Source


@dataclass
class BnStats(Method):
    """Sharpen or soften the logits of a model that normalises by the batch at hand."""

    temperature: Positive = 1.0

    memory = "batch"

    def setup(self, model: Model, source: Source) -> None:
        self.model = model
        model.use_batch_statistics()

    def step(self, x: Tensor) -> Tensor:
        return self.model(x) / self.temperature

    def reset(self) -> None:
        pass  # nothing is remembered
