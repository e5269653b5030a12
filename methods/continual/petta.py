"""PeTTA: RoTTA that measures how far it has drifted, and holds on accordingly (Hoang et al., 2024)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from tta_bench.api import Choice, Log, Model, NonNegative, Source, Target, spaces
from tta_bench_methods._shared.gradient import derived_seed, learning
from tta_bench_methods._shared.jitter import jitter
from tta_bench_methods._shared.losses import cross_entropy, symmetric_cross_entropy
from tta_bench_methods._shared.memory_method import running_norms
from tta_bench_methods._shared.norms.running import RunningNorm
from tta_bench_methods._shared.teacher import frozen_copy
from tta_bench_methods.continual.cifar import cifar_classes
from tta_bench_methods.continual.rotta import Rotta, smoothed_entropy

FEATURE_RATE = 0.05  # weight of a batch in the running class means
MOST_DRIFT = math.nextafter(1.0, 0.0)  # γ is below 1, which exp reaches in floating point
BATCH = 64  # images, for plans: a step takes the whole memory whatever the batch


@dataclass
class Petta(Rotta):
    """RoTTA with a step after every batch. The drift γ of the classes' mean features weights a pull to the
    source's parameters, and slows the teacher down; a frozen source network teaches, too."""

    pull: NonNegative = 10.0  # λ₀
    loss: Literal["ce", "sce"] = "ce"  # sce: symmetric, on plain and augmented images (CIFAR)
    adaptive: bool = True  # false: γ = 0

    summary = "RoTTA that senses its own drift"
    search_space = spaces(lr=Log(1e-5, 1e-2), pull=Log(0.1, 100.0), loss=Choice("ce", "sce"))
    passes_shown = "≤5/≤2"
    version = "2"
    needs = "gradients, norm layers, clean images"
    remembers = (*Rotta.remembers, "class_means")

    @classmethod
    def presets(cls, target: Target) -> dict[str, Any]:
        return {"loss": "sce"} if cifar_classes(target) else {}

    def passes(self) -> tuple[int, int]:
        learning, memory = (3, 1) if self.loss == "ce" else (4, 2), math.ceil(self.capacity / BATCH)
        return 1 + learning[0] * memory, learning[1] * memory

    def prepare_(self, model: Model, source: Source) -> None:
        super().prepare_(model, source)
        self.anchor = frozen_copy(model)
        with torch.no_grad():
            z = torch.cat([model.features(x) for x in source.batches()])
            self.source_means, self.source_variances = class_statistics(z, model.head(z).argmax(1), model)
        self.class_means = self.source_means

    @learning()
    def setup(self, model: Model, source: Source) -> None:
        super().setup(model, source)
        self.source_parameters = [p.detach().clone() for p in self.parameters]

    @property
    def layers(self) -> list[RunningNorm]:
        return running_norms(self.model, self.teacher, self.anchor)

    def adapt(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            z = self.teacher.features(x)
            logits = self.teacher.head(z)
        if self.finite(logits):
            labels = logits.argmax(1)
            for image, label, h in zip(x, labels, smoothed_entropy(logits), strict=True):
                self.images.offer_(image, int(label), float(h))
            drift = self.drift(labels)
            self.move_means_(z, labels)
            self.learn_with(drift)
        return logits

    def drift(self, labels: Tensor) -> float:
        """γ = 1 − exp(−mean of (μ̂ − μ)²/v) over the dimensions of all predicted classes."""
        if not self.adaptive:
            return 0.0
        classes = labels.unique()
        gap = (self.class_means - self.source_means)[classes].square()
        near = float(torch.exp(-(gap / (self.source_variances[classes] + 1e-6)).mean()))
        return min(1 - near, MOST_DRIFT)

    def move_means_(self, z: Tensor, labels: Tensor) -> None:
        """μ̂_c ← 0.95·μ̂_c + 0.05·the mean of the batch's features of each predicted class."""
        counts, means = means_by_class(z, labels, len(self.class_means))
        moved = self.class_means.lerp(means, FEATURE_RATE)
        self.class_means = torch.where(counts > 0, moved, self.class_means)

    def learn_with(self, drift: float) -> None:
        """Take a step of the student on the memory."""
        x = self.images.batch()
        with self.learning_statistics():
            with torch.no_grad():
                target, anchor = self.teacher(x), self.anchor(x)
            view = self.model(jitter(x, derived_seed(self.seed, self.images.arrived)))
            loss = self.teaching_loss(x, view, target) + cross_entropy(anchor, view).mean()
        if self.descend(loss - drift * self.pull * self.likeness()):
            self.follow_((1 - drift) * self.teacher_rate)

    def teaching_loss(self, x: Tensor, view: Tensor, target: Tensor) -> Tensor:
        """The cross-entropy to the teacher, or the mean of four on plain and augmented images."""
        if self.loss == "ce":
            return cross_entropy(target, view).mean()
        both = symmetric_cross_entropy(self.model(x), target) + symmetric_cross_entropy(view, target)
        return both.mean() / 2

    def likeness(self) -> Tensor:
        """The mean cosine of parameter tensors with those of the source."""
        pairs = zip(self.parameters, self.source_parameters, strict=True)
        return torch.stack([F.cosine_similarity(p, p0, dim=0) for p, p0 in pairs]).mean()


def means_by_class(z: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Number [C, 1] and mean [C, d] of the rows of each class; the mean is zero where there are none."""
    members = F.one_hot(labels, classes).to(z)
    counts = members.sum(0)[:, None]
    return counts, members.T @ z / counts.clamp(min=1)


def class_statistics(z: Tensor, labels: Tensor, model: Model) -> tuple[Tensor, Tensor]:
    """Mean and variance of the features of each class. A class of one image has the variance of all features,
    one without images their mean, too, where the published code has NaN."""
    counts, means = means_by_class(z, labels, model.num_classes)
    _, squares = means_by_class((z - means[labels]).square(), labels, model.num_classes)
    variances = squares * counts / (counts - 1).clamp(min=1)
    return torch.where(counts > 0, means, z.mean(0)), torch.where(counts > 1, variances, z.var(0))
