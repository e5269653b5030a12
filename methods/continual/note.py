"""NOTE: instance-aware batch norm, and entropy descent on a balanced memory (Gong et al., 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tta_bench.api import Choice, Count, Fraction, Log, Model, Momentum, NonNegative, Seed, Source, spaces
from tta_bench_methods._shared.image_memory import PbrsMemory
from tta_bench_methods._shared.memory_method import MemoryMethod
from tta_bench_methods._shared.norms.instance_aware import InstanceAwareNorm
from tta_bench_methods._shared.norms.running import remember_, replace_batch_norms_, without_batch_norm
from tta_bench_methods.continual.rotta import smoothed_entropy


@dataclass
class Note(MemoryMethod):
    """Every image is predicted on arrival by IABN; after every `capacity` images, one step on the entropy
    of a memory with equal shares of all classes, whose statistics enter the running ones."""

    optimizer: Literal["sgd", "adam"] = "adam"  # adam: without momentum
    lr: NonNegative = 1e-4  # learning rate
    momentum: Momentum = 0.9  # momentum of SGD
    k: NonNegative = 4.0  # standard errors by which an image may differ without being corrected
    norm_momentum: Fraction = 0.01  # weight of the memory's statistics
    capacity: Count = 64  # images in the memory
    seed: Seed = 2020  # seed of the method's random draws

    summary = "instance-aware batch norm, entropy descent on a balanced memory"
    search_space = spaces(lr=Log(1e-6, 1e-2), k=Choice(2, 3, 4, 6, 8), norm_momentum=Log(1e-3, 0.3))
    forwards, backwards, passes_shown = 2, 1, "≈2/1"
    needs = "gradients, BatchNorm2d"

    def unsupported(self, model: Model) -> str | None:
        return super().unsupported(model) or without_batch_norm(model)

    def prepare_(self, model: Model, source: Source) -> None:
        make = lambda norm: InstanceAwareNorm(norm, self.k, self.norm_momentum)  # noqa: E731
        self.iabn = replace_batch_norms_(model, make)
        self.images = PbrsMemory(self.capacity, self.seed)

    def adapt(self, x: Tensor) -> Tensor:
        return torch.cat([self.predict_and_collect(part) for part in self.images.parts(x)])

    def predict_and_collect(self, x: Tensor) -> Tensor:
        """Predict images and offer them to the memory; learn if it is due."""
        with torch.no_grad():
            logits = self.model(x)
        if self.finite(logits):
            for image, label in zip(x, logits.argmax(1), strict=True):
                self.images.offer_(image, int(label))
            if self.images.arrived % self.capacity == 0:
                self.learn()
        return logits

    def learn(self) -> None:
        """Take a step on the mean of −p·log p over images and classes, and keep the statistics."""
        for layer in self.iabn:
            layer.learning = True
        logits = self.model(self.images.batch())
        for layer in self.iabn:
            layer.learning = False
        if self.descend(smoothed_entropy(logits).mean() / logits.shape[1]) and not remember_(self.iabn):
            self.skip("the statistics of the memory were not finite")
