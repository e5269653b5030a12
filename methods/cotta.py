"""CoTTA: continual adaptation to an averaged teacher, with stochastic restoration (Wang et al., 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tta_bench.api import (
    Choice,
    Count,
    Fraction,
    Log,
    Model,
    Momentum,
    NonNegative,
    Seed,
    Source,
    Target,
    spaces,
)
from tta_bench_methods._shared.gradient import GradientMethod, derived_seed
from tta_bench_methods._shared.jitter import jitter
from tta_bench_methods._shared.losses import symmetric_cross_entropy
from tta_bench_methods._shared.teacher import follow_, frozen_copy, weights_and_biases
from tta_bench_methods._shared.variant import VariantName


@dataclass
class CoTTA(GradientMethod):
    """The student's weights are all trained towards the teacher, their running average, which predicts.
    At every step a few of the student's weights return to the source.

    corrected: images in [0, 1] are augmented, and then normalised.
    released: normalised images are cut to [0, 1] and augmented, as in FOA's repository.
    """

    variant: VariantName = "corrected"  # follow the paper, or the authors' code where it differs
    lr: NonNegative = 0.005  # learning rate
    momentum: Momentum = 0.9  # momentum of SGD
    nesterov: bool = False  # Nesterov momentum
    teacher_momentum: Fraction = 0.999  # share of the teacher's weights that stays at each step
    restore: Fraction = 0.001  # probability that a weight returns to the source
    augment_below: NonNegative = 0.1  # confidence of the anchor below which the teacher averages over views
    views: Count = 32  # augmented views that the teacher averages over
    seed: Seed = 2020  # of the random draws; filled with the seed of the cell

    summary = "student of an averaged teacher, with restoration"
    search_space = spaces(
        lr=Log(1e-5, 2e-2),
        teacher_momentum=Choice(0.99, 0.995, 0.999),
        restore=Log(1e-4, 0.1),
    )
    forwards, backwards, passes_shown = 3, 1, "3–35/1"
    needs = "gradients"
    trains = "weights and biases"
    remembers = ("batches",)

    @classmethod
    def presets(cls, target: Target) -> dict[str, Any]:
        return {"lr": 0.01, "nesterov": True} if target.family == "resnet" else {}

    def trainable(self, model: Model) -> list[nn.Parameter]:
        """All weights and biases, but not class token and positions, as published."""
        return weights_and_biases(model)

    def prepare_(self, model: Model, source: Source) -> None:
        super().prepare_(model, source)
        self.batches = 0
        self.teacher, self.anchor = frozen_copy(model), frozen_copy(model)

    def setup(self, model: Model, source: Source) -> None:
        super().setup(model, source)
        # The anchor never changes, so both others are reset from it: three copies, not five.
        self.initial["tensors"] = 2 * self.trainable(self.anchor)

    def tensors(self) -> list[Tensor]:
        return super().tensors() + [p.detach() for p in self.trainable(self.teacher)]

    def adapt(self, x: Tensor) -> Tensor:
        self.batches += 1
        student = self.model(x)
        target = self.teach(x)
        if self.descend(symmetric_cross_entropy(student, target).mean()):
            follow_(self.trainable(self.teacher), self.parameters, 1 - self.teacher_momentum)
            self.restore_some_()
        return target

    @torch.no_grad()
    def teach(self, x: Tensor) -> Tensor:
        """The teacher's logits, averaged over views if the anchor is not confident about the batch."""
        unsure = self.anchor(x).softmax(1).amax(1).mean() < self.augment_below
        plain = self.teacher(x)  # computed even if views replace it, as published
        if unsure:
            return torch.stack([self.teacher(self.view(x, i)) for i in range(self.views)]).mean(0)
        return plain

    def view(self, x: Tensor, index: int) -> Tensor:
        """One augmentation of the batch."""
        seed = derived_seed(self.seed, self.batches, index)
        if self.variant == "corrected":
            return jitter(x, seed)
        return jitter(self.model.normalise(x), seed) * self.model.std + self.model.mean

    @torch.no_grad()
    def restore_some_(self) -> None:
        """Put each of the student's weights back to the source with probability `restore`."""
        rng = torch.Generator().manual_seed(derived_seed(self.seed, self.batches))
        for student, source in zip(self.parameters, self.trainable(self.anchor), strict=True):
            back = torch.rand(student.shape, generator=rng).to(student.device) < self.restore
            student.copy_(torch.where(back, source, student))
