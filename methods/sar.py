"""SAR: sharpness-aware and reliable entropy minimisation (Niu et al., 2023)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tta_bench.api import Log, Model, Momentum, NonNegative, Source, Target, Uniform, spaces
from tta_bench_methods.gradient import EarlyNormMethod, affine_parameters, entropy, mean_over


@dataclass
class Sar(EarlyNormMethod):
    """Descend the entropy of confident samples with the gradient of the worst point nearby (SAM),
    and go back to the source when that entropy has all but vanished.

    official: predicts with the first pass; the second one filters what the first has kept.
    foa: as in FOA's repository: predicts with the perturbed pass, which filters the whole batch.
    """

    variant: Literal["official", "foa"] = "official"
    lr: NonNegative = 1e-3  # for 64 images; see lr_for_batch
    momentum: Momentum = 0.9
    rho: NonNegative = 0.05
    margin: NonNegative = 0.4  # E0 in units of ln C
    recover_below: NonNegative = 0.2
    norms: Literal["early", "all"] = "early"

    summary = "sharpness-aware entropy descent on confident samples"
    search_space = spaces(lr=Log(1e-5, 1e-2), rho=Log(0.01, 0.2), margin=Uniform(0.2, 0.8))
    cost = "2/2"
    remembers = (*EarlyNormMethod.remembers, "mean_entropy")

    @classmethod
    def presets(cls, target: Target) -> dict[str, Any]:
        return {"lr": 2.5e-4} if target.family == "resnet" else {}

    def trainable(self, model: Model) -> list[nn.Parameter]:
        everywhere = affine_parameters(model.norms())
        return everywhere if self.norms == "all" else super().trainable(model)

    def setup(self, model: Model, source: Source) -> None:
        self.mean_entropy: Tensor | None = None  # e
        self.threshold = self.margin * math.log(model.num_classes)
        super().setup(model, source)

    def adapt(self, x: Tensor) -> Tensor:
        logits = self.model(x)
        if not self.finite(logits):
            return logits
        h = entropy(logits)
        sure = h < self.threshold
        # The official code goes on without a sure sample: its zero gradient still lets momentum move.
        if self.variant == "foa" and not sure.any():
            return logits
        self.updater.zero_grad()
        mean_over(h, sure).backward()
        perturbed = self.sharpness_aware_step(x, sure)
        return logits if self.variant == "official" else perturbed

    def sharpness_aware_step(self, x: Tensor, sure: Tensor) -> Tensor:
        """Step from θ with the gradient at θ+, and return the logits at θ+."""
        with uphill(self.parameters, self.rho):
            logits = self.model(x)
            if not self.finite(logits):
                return logits
            h = entropy(logits)
            kept = h < self.threshold
            if self.variant == "official":
                kept &= sure
            loss = mean_over(h, kept)
            self.updater.zero_grad()
            loss.backward()
        self.updater.step()
        if kept.any():
            self.watch_for_collapse(loss.detach())
        return logits

    def watch_for_collapse(self, loss: Tensor) -> None:
        """Follow the loss, and start again from the source once its average is too good."""
        old = self.mean_entropy
        self.mean_entropy = loss if old is None else 0.9 * old + 0.1 * loss
        if self.mean_entropy < self.recover_below:
            # The official code leaves momentum and the low average in place, and so resets again at
            # every batch until the average is up; both are cleared here.
            self.restore_({**self.initial, "first_size": self.first_size})


@contextmanager
def uphill(parameters: Sequence[nn.Parameter], rho: float) -> Iterator[None]:
    """θ+ = θ + ρ·g/‖g‖ inside, g being the gradients at hand; exactly θ again outside."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    moved = [p.detach() for p in parameters if p.grad is not None]
    before = [p.clone() for p in moved]
    norm = torch.stack([g.norm() for g in gradients]).norm()
    for parameter, gradient in zip(moved, gradients, strict=True):
        parameter.add_(gradient * (rho / (norm + 1e-12)))
    try:
        yield
    finally:
        for parameter, old in zip(moved, before, strict=True):
            parameter.copy_(old)
