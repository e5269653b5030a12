"""DELTA: batch renormalisation and class weights for entropy descent (Zhao et al., 2023)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tta_bench.api import Choice, Fraction, Log, Model, Momentum, NonNegative, Source, spaces
from tta_bench_methods._shared.gradient import FirstPassMethod, entropy, mean_over
from tta_bench_methods._shared.norms.running import remember_, replace_batch_norms_, without_batch_norm
from tta_bench_methods.tbr import RenormalisedNorm

PL_ABOVE = 0.4
ETA_MARGIN = 0.5  # of ln C


@dataclass
class Delta(FirstPassMethod):
    """Entropy descent on a network with TBR; images of classes that were predicted often weigh less.

    loss: entropy, cross-entropy to own labels of more than 0.4 probability (pl), or entropy weighted by
    exp(½·ln C − H) where that is above 1 (eta).
    """

    loss: Literal["entropy", "pl", "eta"] = "entropy"  # what a step minimises
    lr: NonNegative = 2.5e-4  # learning rate
    momentum: Momentum = 0.9  # momentum of SGD
    norm_momentum: Fraction = 0.95  # weight of the past in the statistics
    class_momentum: Fraction = 0.95  # weight of the past in the class frequencies

    summary = "entropy descent with batch renormalisation and class weights"
    search_space = spaces(loss=Choice("entropy", "pl", "eta"), lr=Log(1e-5, 1e-2))
    needs = "gradients, BatchNorm2d"
    remembers = ("frequencies", "statistics")

    def unsupported(self, model: Model) -> str | None:
        return super().unsupported(model) or without_batch_norm(model)

    def prepare_(self, model: Model, source: Source) -> None:
        self.layers = replace_batch_norms_(model, lambda norm: RenormalisedNorm(norm, self.norm_momentum))
        self.frequencies = torch.full((model.num_classes,), 1 / model.num_classes, device=model.device)

    @property
    def statistics(self) -> list[Tensor | None]:
        """The running statistics of all layers."""
        return [layer.running for layer in self.layers]

    @statistics.setter
    def statistics(self, values: list[Tensor | None]) -> None:
        for layer, value in zip(self.layers, values, strict=True):
            layer.running = value

    def adapt(self, x: Tensor) -> Tensor:
        logits = self.model(x)
        if not self.finite(logits):
            return logits
        if remember_(self.layers):
            self.learn(logits)
        else:
            self.skip("the statistics of a batch were not finite")
        return logits

    def learn(self, logits: Tensor) -> None:
        """Take a step on the images that are used, if there are any, and update the class frequencies."""
        p = logits.detach().softmax(1)
        kept, losses = self.losses(logits)
        if kept.any():
            self.descend(mean_over(self.class_weights(p) * losses, kept))
        self.frequencies = p.mean(0).lerp(self.frequencies, self.class_momentum)

    def losses(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Which images are used, and the loss of each."""
        h = entropy(logits)
        if self.loss == "entropy":
            return torch.ones_like(h, dtype=torch.bool), h
        if self.loss == "pl":
            log_p = logits.log_softmax(1).amax(1)
            return log_p.detach().exp() > PL_ABOVE, -log_p
        weight = torch.exp(ETA_MARGIN * math.log(logits.shape[1]) - h.detach())
        return weight > 1, weight * h

    def class_weights(self, p: Tensor) -> Tensor:
        """DOT: 1/q̂ of the predicted class, with a mean of one over the batch."""
        weights = self.frequencies[p.argmax(1)].reciprocal()
        return weights / weights.mean()
