"""RoTTA: a teacher, robust batch norm and a balanced memory of recent, certain images (Yuan et al., 2023)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tta_bench.api import Choice, Count, Fraction, Log, Model, Momentum, NonNegative, Seed, Source, spaces
from tta_bench_methods._shared.gradient import affine_parameters, derived_seed
from tta_bench_methods._shared.image_memory import CstuMemory
from tta_bench_methods._shared.jitter import jitter
from tta_bench_methods._shared.losses import cross_entropy
from tta_bench_methods._shared.memory_method import MemoryMethod, running_norms
from tta_bench_methods._shared.norms.robust import RobustNorm
from tta_bench_methods._shared.norms.running import RunningNorm, remember_, replace_batch_norms_
from tta_bench_methods._shared.teacher import follow_, frozen_copy


@dataclass
class Rotta(MemoryMethod):
    """The teacher predicts. After every `capacity` images the student learns the teacher's predictions of
    the memory from augmented images, recent ones first, and the teacher follows it slowly."""

    optimizer: Literal["sgd", "adam"] = "adam"  # adam: without momentum
    lr: NonNegative = 1e-3  # learning rate
    momentum: Momentum = 0.9  # momentum of SGD
    teacher_rate: Fraction = 1e-3  # ν: weight of the student in the teacher
    norm_momentum: Fraction = 0.05  # weight of the memory in BatchNorm statistics
    capacity: Count = 64  # images in the memory
    seed: Seed = 2020  # seed of the method's random draws

    summary = "averaged teacher, robust batch norm, balanced memory"
    search_space = spaces(
        lr=Log(1e-5, 1e-2), teacher_rate=Log(1e-4, 0.1), norm_momentum=Choice(0.01, 0.05, 0.2)
    )
    forwards, backwards, passes_shown = 3, 1, "≈3/1"

    def prepare_(self, model: Model, source: Source) -> None:
        replace_batch_norms_(model, lambda norm: RobustNorm(norm, self.norm_momentum))
        self.images = CstuMemory(self.capacity, model.num_classes)
        self.teacher = frozen_copy(model)
        self.teacher_affine = [p.detach() for p in affine_parameters(self.teacher.norms())]

    @property
    def layers(self) -> list[RunningNorm]:
        return running_norms(self.model, self.teacher)

    def tensors(self) -> list[Tensor]:
        return super().tensors() + self.teacher_affine

    def adapt(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            logits = self.teacher(x)
        if self.finite(logits):
            for image, label, h in zip(x, logits.argmax(1), smoothed_entropy(logits), strict=True):
                self.images.offer_(image, int(label), float(h))
                if self.images.arrived % self.capacity == 0:
                    self.learn()
        return logits

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        return self.teacher(x)

    def learn(self) -> None:
        """Take a step of the student on the memory; the teacher follows."""
        x = self.images.batch()
        with self.learning_statistics():
            with torch.no_grad():
                target = self.teacher(x)
            student = self.model(jitter(x, derived_seed(self.seed, self.images.arrived)))
        if self.descend((self.timeliness(x) * cross_entropy(target, student)).mean()):
            self.follow_(self.teacher_rate)

    def timeliness(self, x: Tensor) -> Tensor:
        """ω = e^−a/(1 + e^−a) with the age a of each image in units of the capacity."""
        return torch.sigmoid(-torch.tensor(self.images.ages, dtype=x.dtype, device=x.device) / self.capacity)

    def follow_(self, rate: float) -> None:
        """Keep new statistics, and move the teacher's affine parameters towards the student's."""
        if not remember_(self.layers):
            self.skip("the statistics of the memory were not finite")
        follow_(self.teacher_affine, self.parameters, rate)

    @contextmanager
    def learning_statistics(self) -> Iterator[None]:
        """Passes inside take their batch into the statistics of robust norms."""
        layers = [layer for layer in self.layers if isinstance(layer, RobustNorm)]
        for layer in layers:
            layer.proposed, layer.learning = layer.running, True
        try:
            yield
        finally:
            for layer in layers:
                layer.learning = False


def smoothed_entropy(logits: Tensor) -> Tensor:
    """Entropy of each row with log(p + 1e-6), as published."""
    p = logits.softmax(1)
    return -(p * (p + 1e-6).log()).sum(1)
