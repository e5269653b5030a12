"""RMT: robust mean teacher with a symmetric cross-entropy and contrast, without source data
(Döbler et al., 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tta_bench.api import Choice, Fraction, Log, Model, Momentum, NonNegative, Seed, Source, Target, spaces
from tta_bench_methods._shared.contrast import Contrast
from tta_bench_methods._shared.gradient import GradientMethod, derived_seed
from tta_bench_methods._shared.jitter import jitter
from tta_bench_methods._shared.losses import symmetric_cross_entropy
from tta_bench_methods._shared.teacher import follow_, frozen_copy, weights_and_biases
from tta_bench_methods.continual.cifar import adam_on_cifar


@dataclass
class Rmt(GradientMethod):
    """Train all weights and biases towards an averaged teacher on images and their augmentations, and by
    contrast with class prototypes. The logits of student and teacher are added."""

    optimizer: Literal["sgd", "adam"] = "sgd"  # adam: without momentum
    lr: NonNegative = 0.01  # learning rate
    momentum: Momentum = 0.9  # momentum of SGD
    nesterov: bool = True  # Nesterov momentum
    teacher_momentum: Fraction = 0.999  # weight of the old teacher
    teacher_weight: NonNegative = 1.0  # λ_t
    contrast_weight: NonNegative = 1.0  # λ_c
    seed: Seed = 2020  # seed of the method's random draws

    summary = "symmetric mean teacher with contrast, without source data"
    search_space = spaces(
        lr=Log(1e-5, 0.1), teacher_momentum=Choice(0.99, 0.995, 0.999), contrast_weight=Log(0.01, 10.0)
    )
    forwards, backwards = 3, 2
    needs = "gradients, clean images"
    trains = "weights and biases"
    remembers = ("batches",)

    @classmethod
    def presets(cls, target: Target) -> dict[str, Any]:
        return adam_on_cifar(target)

    def trainable(self, model: Model) -> list[nn.Parameter]:
        return weights_and_biases(model)

    def prepare_(self, model: Model, source: Source) -> None:
        super().prepare_(model, source)
        self.batches = 0
        self.teacher = frozen_copy(model)
        self.contrast = Contrast(model, source, self.seed)

    def new_optimizer(self) -> torch.optim.Optimizer:
        """The optimizer of the network and the projector."""
        self.parameters.extend(self.contrast.projector)
        return super().new_optimizer()

    def tensors(self) -> list[Tensor]:
        return super().tensors() + [p.detach() for p in weights_and_biases(self.teacher)]

    def adapt(self, x: Tensor) -> Tensor:
        self.batches += 1
        z = self.model.features(x)
        logits = self.model.head(z)
        with torch.no_grad():
            target = self.teacher(x)
        if self.finite(logits):
            view = self.model.features(jitter(x, derived_seed(self.seed, self.batches)))
            both = [logits, self.model.head(view)]
            loss = torch.stack([symmetric_cross_entropy(each, target) for each in both]).sum(0).mean() / 2
            loss = self.teacher_weight * loss
            if self.contrast_weight:
                loss = loss + self.contrast_weight * self.contrast.loss(z, view)
            if self.descend(loss):
                student = weights_and_biases(self.model)
                follow_(weights_and_biases(self.teacher), student, 1 - self.teacher_momentum)
        return logits + target
