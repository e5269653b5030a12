"""BN-Adapt: BatchNorm statistics of the test stream (Nado et al., 2020; Schneider et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tta_bench.api import Choice, Fraction, Log, Method, Model, NonNegative, Source, Uniform, spaces
from tta_bench_methods._shared.moments import mean_and_variance
from tta_bench_methods._shared.norms.running import (
    RunningNorm,
    remember_,
    replace_batch_norms_,
    without_batch_norm,
)


class StreamNorm(RunningNorm):
    """A BatchNorm2d that blends its stored statistics with those of the current batch.

    It uses the unbiased variance, as PyTorch's running update does. The `test` variant does not use this
    class; its variance is the biased one, as in PyTorch's training mode.
    """

    def __init__(self, norm: nn.BatchNorm2d, method: BnAdapt) -> None:
        super().__init__(norm)
        self.method = method

    def reset(self) -> None:
        super().reset()
        self.batches = 0

    def forward(self, x: Tensor) -> Tensor:
        batch = torch.stack(mean_and_variance(x, (0, 2, 3)))
        used = self.method.blend(self.source, self.running, batch, len(x), self.batches + 1)
        if self.method.memory == "stream":
            self.proposed = used
        return self.normalised(x, used)


@dataclass
class BnAdapt(Method):
    """Replace BatchNorm statistics by the stream's, or blend them; parameters do not change.

    test: the batch only · alpha: (1-α)·source + α·batch · prior: alpha with α = n/(n+N)
    cumulative: equal-weight average of all batches so far · ema: running ← (1-α)·running + α·batch
    """

    # Where the statistics come from, see above.
    variant: Literal["test", "alpha", "prior", "cumulative", "ema"] = "test"
    alpha: Fraction = 0.1  # α, weight of the batch; of `alpha` and `ema`
    prior: NonNegative = 16.0  # N, images that the source statistics count for; of `prior`

    summary = "batch-norm statistics from the stream"
    search_space = spaces(
        variant=Choice("test", "alpha", "prior", "cumulative", "ema"),
        alpha=Uniform(0.02, 0.9),
        prior=Log(1.0, 256.0),
    )
    needs = "BatchNorm2d"

    @property
    def memory(self) -> Literal["batch", "stream"]:  # type: ignore[override]
        return "stream" if self.variant in ("cumulative", "ema") else "batch"

    @property
    def consumes(self) -> Literal["images", "features"]:  # type: ignore[override]
        return "features" if self.variant == "test" else "images"

    @property
    def replaces_norms(self) -> bool:  # type: ignore[override]
        return self.variant != "test"

    def batch_statistics(self, model: Model) -> bool:
        return True

    def unsupported(self, model: Model) -> str | None:
        return without_batch_norm(model) or super().unsupported(model)

    def setup(self, model: Model, source: Source) -> None:
        self.model = model
        self.layers: list[StreamNorm] = []
        if self.variant == "test":  # the harness makes features with batch statistics
            return
        self.layers = replace_batch_norms_(model, lambda norm: StreamNorm(norm, self))

    def blend(self, source: Tensor, running: Tensor, batch: Tensor, images: int, batches: int) -> Tensor:
        """The statistics a layer uses for this batch."""
        if self.variant == "cumulative":
            return running.lerp(batch, 1 / batches)
        if self.variant == "ema":
            return running.lerp(batch, self.alpha)
        alpha = images / (images + self.prior) if self.variant == "prior" else self.alpha
        return source.lerp(batch, alpha)

    def step(self, x: Tensor) -> Tensor:
        if self.variant == "test":
            return self.model.head(x)
        output = self.model(x)
        if self.memory == "stream":
            self._remember()
        return output

    def _remember(self) -> None:
        """Keep the new statistics of all layers, or of none: what is not finite would stay in them."""
        if not remember_(self.layers):
            self.skip("the statistics of a batch were not finite")
            return
        for layer in self.layers:
            layer.batches += 1

    def reset(self) -> None:
        for layer in self.layers:
            layer.reset()

    def state_dict(self) -> dict[str, Any]:
        return {"layers": [(layer.running, layer.batches) for layer in self.layers]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for layer, (running, batches) in zip(self.layers, state["layers"], strict=True):
            layer.running, layer.batches = running, batches
