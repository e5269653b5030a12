"""TBR: test-time batch renormalisation, the normalisation of DELTA (Zhao et al., 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tta_bench.api import Fraction, Method, Model, Source, Uniform, spaces
from tta_bench_methods._shared.norms.running import (
    RunningNorm,
    remember_,
    replace_batch_norms_,
    without_batch_norm,
)


class RenormalisedNorm(RunningNorm):
    """A BatchNorm2d that normalises by the stream so far; `running` has the standard deviation, not the
    variance, and is None before the first batch, which is normalised by itself.

    Gradients pass through the statistics of the batch, as in batch renormalisation.
    """

    running: Tensor | None  # type: ignore[assignment]

    def __init__(self, norm: nn.BatchNorm2d, momentum: float) -> None:
        super().__init__(norm)
        self.momentum = momentum

    def reset(self) -> None:
        self.running = None

    def forward(self, x: Tensor) -> Tensor:
        norm = self.norm
        with torch.no_grad():
            variance, mean = torch.var_mean(x, (0, 2, 3), correction=0)
            batch = torch.stack([mean, (variance + norm.eps).sqrt()])
            past = batch if self.running is None else self.running
            self.proposed = batch if self.running is None else batch.lerp(past, self.momentum)
            scale = (batch[1] / past[1]).view(-1, 1, 1)  # r of batch renormalisation
            offset = ((batch[0] - past[0]) / past[1]).view(-1, 1, 1)  # d
        own = F.batch_norm(x, None, None, training=True, eps=norm.eps) * scale + offset
        return own * norm.weight.view(-1, 1, 1) + norm.bias.view(-1, 1, 1)


@dataclass
class Tbr(Method):
    """Normalise by a running mean and standard deviation of the stream, which starts at its first batch.
    The current batch is taken into them after it was normalised."""

    momentum: Fraction = 0.95  # weight of the past

    memory = "stream"
    replaces_norms = True
    summary = "batch-norm statistics of the stream so far"
    search_space = spaces(momentum=Uniform(0.5, 0.99))
    needs = "BatchNorm2d"

    def unsupported(self, model: Model) -> str | None:
        return without_batch_norm(model) or super().unsupported(model)

    def setup(self, model: Model, source: Source) -> None:
        self.model = model
        self.layers = replace_batch_norms_(model, lambda norm: RenormalisedNorm(norm, self.momentum))

    def step(self, x: Tensor) -> Tensor:
        output = self.model(x)
        if not remember_(self.layers):
            self.skip("the statistics of a batch were not finite")
        return output

    def reset(self) -> None:
        for layer in self.layers:
            layer.reset()

    def state_dict(self) -> dict[str, Any]:
        return {"layers": [layer.running for layer in self.layers]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for layer, running in zip(self.layers, state["layers"], strict=True):
            layer.running = running
