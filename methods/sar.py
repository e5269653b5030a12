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
from tta_bench_methods._shared.gradient import EarlyNormMethod, affine_parameters, entropy, mean_over
from tta_bench_methods._shared.variant import VariantName


@dataclass
class Sar(EarlyNormMethod):
    """Minimise the entropy of confident samples with the gradient at the worst point nearby (SAM), and
    return to the source when the running mean of that entropy is close to zero.

    corrected: the first pass predicts, and the second one filters the samples that the first has kept.
    released: the second, perturbed pass predicts and filters the whole batch, as in FOA's repository.
    """

    variant: VariantName = "corrected"  # follow the paper, or the authors' code where it differs
    lr: NonNegative = 1e-3  # for 64 images; see lr_for_batch
    momentum: Momentum = 0.9  # momentum of SGD
    rho: NonNegative = 0.05  # ρ, radius of the perturbation of the weights
    margin: NonNegative = 0.4  # E0 in units of ln C
    recover_below: NonNegative = 0.2  # return to the source when the mean entropy falls below this
    # Which norm layers are trained: those before the last stage, or all.
    norms: Literal["early", "all"] = "early"

    summary = "sharpness-aware entropy descent on confident samples"
    search_space = spaces(lr=Log(1e-5, 1e-2), rho=Log(0.01, 0.2), margin=Uniform(0.2, 0.8))
    forwards, backwards = 2, 2
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
        # SAR's own code steps without confident samples, too: the gradient is zero, momentum is not.
        if self.variant == "released" and not sure.any():
            return logits
        self.updater.zero_grad()
        mean_over(h, sure).backward()
        perturbed = self.sharpness_aware_step(x, sure)
        return perturbed if self.variant == "released" else logits

    def sharpness_aware_step(self, x: Tensor, sure: Tensor) -> Tensor:
        """Take a step from θ with the gradient at θ+; return the logits at θ+."""
        with uphill(self.parameters, self.rho):
            logits = self.model(x)
            if not self.finite(logits):
                return logits
            h = entropy(logits)
            kept = h < self.threshold
            if self.variant == "corrected":
                kept &= sure
            loss = mean_over(h, kept)
            self.updater.zero_grad()
            loss.backward()
        self.updater.step()
        if kept.any():
            self.watch_for_collapse(loss.detach())
        return logits

    def watch_for_collapse(self, loss: Tensor) -> None:
        """Update the running mean of the loss; return to the source if it is below `recover_below`."""
        old = self.mean_entropy
        self.mean_entropy = loss if old is None else 0.9 * old + 0.1 * loss
        if self.mean_entropy < self.recover_below:
            # SAR's own code keeps momentum and the low mean, and so resets again at every batch until the
            # mean has risen. Here both are cleared.
            self.restore_({**self.initial, "first_size": self.first_size})


@contextmanager
def uphill(parameters: Sequence[nn.Parameter], rho: float) -> Iterator[None]:
    """Set parameters to θ+ = θ + ρ·g/‖g‖ inside, with g their gradients; restore θ exactly at the end."""
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
