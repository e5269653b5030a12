"""SANTA: source anchoring and target alignment by contrast (Chakrabarty et al., 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from tta_bench.api import Log, Model, Momentum, NonNegative, Seed, Source, Target, spaces
from tta_bench_methods._shared.contrast import Contrast
from tta_bench_methods._shared.gradient import FirstPassMethod, derived_seed
from tta_bench_methods._shared.jitter import jitter
from tta_bench_methods._shared.losses import cross_entropy
from tta_bench_methods._shared.teacher import frozen_copy
from tta_bench_methods.continual.cifar import adam_on_cifar


@dataclass
class Santa(FirstPassMethod):
    """Pull predictions of images and their augmentations to those of the frozen source, and features of an
    image, its augmentation and its nearest class prototype to each other."""

    optimizer: Literal["sgd", "adam"] = "sgd"  # adam: without momentum
    lr: NonNegative = 0.01  # learning rate
    momentum: Momentum = 0.9  # momentum of SGD
    nesterov: bool = True  # Nesterov momentum
    contrast_weight: NonNegative = 1.0  # λ_c, weight of the contrastive loss
    seed: Seed = 2020  # seed of the method's random draws

    summary = "anchored to the source, aligned by contrast"
    search_space = spaces(lr=Log(1e-5, 0.1), contrast_weight=Log(0.01, 10.0))
    forwards, backwards = 3, 2
    needs = "gradients, norm layers, clean images"
    remembers = ("batches",)

    @classmethod
    def presets(cls, target: Target) -> dict[str, Any]:
        return adam_on_cifar(target)

    def prepare_(self, model: Model, source: Source) -> None:
        super().prepare_(model, source)
        self.batches = 0
        self.anchor = frozen_copy(model)
        self.contrast = Contrast(model, source, self.seed)

    def new_optimizer(self) -> torch.optim.Optimizer:
        """The optimizer of norm layers and projector."""
        self.parameters.extend(self.contrast.projector)
        return super().new_optimizer()

    def adapt(self, x: Tensor) -> Tensor:
        self.batches += 1
        z = self.model.features(x)
        logits = self.model.head(z)
        if self.finite(logits):
            view = self.model.features(jitter(x, derived_seed(self.seed, self.batches)))
            with torch.no_grad():
                anchor = self.anchor(x)
            # The student's probabilities weigh the anchor's log-probabilities, as published.
            loss = (cross_entropy(logits, anchor) + cross_entropy(self.model.head(view), anchor)).mean() / 2
            if self.contrast_weight:
                loss = loss + self.contrast_weight * self.contrast.loss(z, view)
            self.descend(loss)
        return logits
