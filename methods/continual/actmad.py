"""ActMAD: statistics of all norm outputs aligned with the source's (Mirza et al., 2023)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tta_bench.api import Log, Model, Momentum, NonNegative, Source, Target, spaces
from tta_bench_methods._shared.gradient import FirstPassMethod, learning
from tta_bench_methods.continual.cifar import cifar_classes


@dataclass
class ActMad(FirstPassMethod):
    """Train all parameters so that mean and variance of every norm layer's output, at every position, are
    those of the source; predict with the parameters before the step."""

    lr: NonNegative = 2.5e-4  # learning rate
    momentum: Momentum = 0.9  # momentum of SGD
    nesterov: bool = True  # Nesterov momentum
    weight_decay: NonNegative = 5e-4  # decay of all parameters

    summary = "norm outputs aligned with the source at every position"
    search_space = spaces(lr=Log(1e-6, 1e-2))
    needs = "gradients, norm layers, clean images"
    min_batch_size = 2
    min_batch_reason = "one image has no variance"

    @classmethod
    def presets(cls, target: Target) -> dict[str, Any]:
        classes = cifar_classes(target)
        return {"lr": 1e-2 if classes == 10 else 1e-3} if classes else {}

    def trainable(self, model: Model) -> list[nn.Parameter]:
        return list(model.parameters()) if model.norms() else []

    def prepare_(self, model: Model, source: Source) -> None:
        """BatchNorm keeps the statistics of the source."""

    @learning()
    def setup(self, model: Model, source: Source) -> None:
        super().setup(model, source)
        with torch.no_grad():
            batches = [self._pass(x)[1] for x in comparable(source).batches() if len(x) > 1]
        # As published, the mean of the batches' statistics, not the statistics of all images.
        self.targets = [torch.stack(layer).mean(0) for layer in zip(*batches, strict=True)]

    def _pass(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Logits, and mean and unbiased variance over images of every norm layer's output."""
        with norm_outputs(self.model) as outputs:
            logits = self.model(x)
        return logits, [torch.stack(torch.var_mean(output, 0)) for output in outputs]

    def adapt(self, x: Tensor) -> Tensor:
        if len(x) < self.min_batch_size:
            self.skip(f"a batch of one image: {self.min_batch_reason}")
            return self.model(x)
        logits, found = self._pass(x)
        passes = self.model.passes
        counted = passes.backward_images
        if self.descend(self.distance(found)) and passes.backward_images == counted:
            # On a network whose last norm comes before the features, no gradient has reached them.
            passes.backward_images += len(x)
        return logits

    def distance(self, found: list[Tensor]) -> Tensor:
        """½·Σ over layers of mean|μ − μ_s| + mean|σ² − σ²_s|."""
        # Both rows of a layer have the same size: twice their common mean is the sum of their means.
        gaps = [(a - b).abs().mean() for a, b in zip(found, self.targets, strict=True)]
        return torch.stack(gaps).sum()


def comparable(source: Source) -> Source:
    """The clean images in batches that have a variance; none, which is refused, if there is only one."""
    enough = source if len(source.images) > 1 else source.first(0)
    return Source(enough.images, max(enough.batch_size, 2), enough.device)


@contextmanager
def norm_outputs(model: Model) -> Iterator[list[Tensor]]:
    """A list that receives the output of every norm layer that is called inside."""
    outputs: list[Tensor] = []
    handles = [
        norm.module.register_forward_hook(lambda *call: outputs.append(call[2])) for norm in model.norms()
    ]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()
