"""ROID: weighted likelihood ratios, source averaging and prior correction (Marsden et al., 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from tta_bench.api import (
    Choice,
    Fraction,
    Log,
    Model,
    Momentum,
    NonNegative,
    Positive,
    Seed,
    Source,
    Target,
    spaces,
)
from tta_bench_methods._shared.gradient import GradientMethod, derived_seed, entropy, learning
from tta_bench_methods._shared.jitter import sharp_jitter
from tta_bench_methods._shared.losses import soft_likelihood_ratio, symmetric_cross_entropy
from tta_bench_methods._shared.teacher import follow_
from tta_bench_methods.continual.cifar import adam_on_cifar
from tta_bench_methods.features.prior_correction import smoothed_prior


@dataclass
class Roid(GradientMethod):
    """Minimise the soft likelihood ratio, and the difference of two views, of images that are confident
    and unlike earlier ones; move parameters back to the source a little; correct predictions by the
    classes of their batch."""

    optimizer: Literal["sgd", "adam"] = "sgd"  # adam: without momentum
    lr: NonNegative = 2.5e-4  # learning rate
    momentum: Momentum = 0.9  # momentum of SGD
    nesterov: bool = True  # Nesterov momentum
    source_momentum: Fraction = 0.99  # weight of the adapted parameters; the source has the rest
    temperature: Positive = 1 / 3  # T of the sample weights
    prior_correction: bool = True  # weight the output by the batch's classes
    seed: Seed = 2020  # seed of the method's random draws

    summary = "weighted likelihood ratios, averaged with the source"
    search_space = spaces(lr=Log(1e-5, 1e-2), source_momentum=Choice(0.9, 0.99, 0.999))
    forwards, backwards, passes_shown = 2, 2, "≤2/≤2"
    remembers = ("mean_probability", "batches", "first_size")
    min_batch_size = 2
    min_batch_reason = "weights compare the images of a batch"

    @classmethod
    def presets(cls, target: Target) -> dict[str, Any]:
        return adam_on_cifar(target)

    def setup(self, model: Model, source: Source) -> None:
        self.batches = self.first_size = 0
        self.mean_probability = torch.full((model.num_classes,), 1 / model.num_classes, device=model.device)
        super().setup(model, source)

    def adapt(self, x: Tensor) -> Tensor:
        self.batches += 1
        logits = self.model(x)
        if len(x) < self.min_batch_size:
            self.skip(f"a batch of one image: {self.min_batch_reason}")
        elif self.finite(logits):
            # The reference divides by the configured size, also for a smaller last batch.
            self.first_size = self.first_size or len(x)
            self.learn(x, logits)
        return self.corrected(logits)

    @learning()
    def predict(self, x: Tensor) -> Tensor:
        return self.corrected(self.model(x)).detach()

    def corrected(self, logits: Tensor) -> Tensor:
        """The output: logits, weighted by the classes of the batch."""
        if not self.prior_correction:
            return logits
        p = logits.detach().softmax(1)
        return logits * smoothed_prior(p[p.isfinite().all(1)])

    def learn(self, x: Tensor, logits: Tensor) -> None:
        """Take a step and move parameters towards the source."""
        p = logits.detach().softmax(1)
        weights = self.sample_weights(p, entropy(logits.detach()))
        kept = weights > 0
        view = self.model(sharp_jitter(x[kept], derived_seed(self.seed, self.batches)))
        losses = soft_likelihood_ratio(logits[kept]) + symmetric_cross_entropy(view, logits[kept])
        if self.descend(weights[kept] @ losses / self.first_size):
            self.mean_probability = self.mean_probability.lerp(p.mean(0), 0.1)
            self.return_()

    def sample_weights(self, p: Tensor, h: Tensor) -> Tensor:
        """exp(diversity·certainty/T), both scaled to 0 … 1; 0 for images of less than average diversity."""
        diversity = scaled(1 - F.cosine_similarity(self.mean_probability[None], p))
        weights = torch.exp(diversity * scaled(-h) / self.temperature)
        return torch.where(diversity < diversity.mean(), 0, weights)

    def return_(self) -> None:
        """θ ← m·θ + (1 − m)·θ⁰."""
        follow_(self.tensors_trained(), self.initial["tensors"], 1 - self.source_momentum)

    def tensors_trained(self) -> list[Tensor]:
        """The adapted parameters, to change in place."""
        return [p.detach() for p in self.parameters]


def scaled(values: Tensor) -> Tensor:
    """Values scaled to 0 … 1; 0 if all are equal, where the reference divides by zero."""
    low, high = values.min(), values.max()
    return (values - low) / (high - low).clamp_min(torch.finfo(values.dtype).tiny)
