"""EATA and ETA: efficient, anti-forgetting entropy minimisation (Niu et al., 2022)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from tta_bench.api import Count, Log, Model, Momentum, NonNegative, Source, Target, Uniform, spaces
from tta_bench_methods._shared.gradient import FirstPassMethod, entropy, learning, mean_over
from tta_bench_methods.continual.cifar import adam_on_cifar, cifar_classes


@dataclass
class Eta(FirstPassMethod):
    """Minimise the weighted entropy of samples that are confident and not redundant."""

    lr: NonNegative = 1e-3  # learning rate for 64 images; see lr_for_batch
    momentum: Momentum = 0.9  # momentum of SGD
    margin: NonNegative = 0.4  # E0 in units of ln C
    redundancy: NonNegative = 0.05  # ε: redundant from this cosine of a prediction and q on
    optimizer: Literal["sgd", "adam"] = "sgd"  # adam: without momentum

    added = MappingProxyType({"optimizer": "sgd"})
    summary = "entropy descent on confident, non-redundant samples"
    search_space = spaces(lr=Log(1e-5, 1e-2), margin=Uniform(0.2, 0.8), redundancy=Log(0.01, 0.9))
    passes_shown = "1/≤1"
    remembers = ("mean_probability",)

    @classmethod
    def presets(cls, target: Target) -> dict[str, Any]:
        if classes := cifar_classes(target):
            return adam_on_cifar(target) | {"redundancy": 0.4 if classes == 10 else 0.1}
        return {"lr": 2.5e-4} if target.family == "resnet" else {}

    def setup(self, model: Model, source: Source) -> None:
        self.mean_probability: Tensor | None = None  # q
        self.threshold = self.margin * math.log(model.num_classes)
        super().setup(model, source)

    def adapt(self, x: Tensor) -> Tensor:
        logits = self.model(x)
        if self.finite(logits):
            self.learn(logits)
        return logits

    def learn(self, logits: Tensor) -> None:
        """Take a step on the selected samples and update q from them, if there are any."""
        p, h = logits.detach().softmax(1), entropy(logits)
        kept = (h < self.threshold) & self.novel(p)
        if not kept.any():
            return
        loss = mean_over(sample_weight(h.detach(), self.threshold) * h, kept) + self.penalty()
        if self.descend(loss):
            batch, q = mean_over(p, kept), self.mean_probability
            self.mean_probability = batch if q is None else 0.9 * q + 0.1 * batch

    def novel(self, p: Tensor) -> Tensor:
        """Which predictions are far enough from q, the average of earlier ones."""
        if self.mean_probability is None:
            return torch.ones(len(p), dtype=torch.bool, device=p.device)
        return F.cosine_similarity(self.mean_probability[None], p).abs() < self.redundancy

    def penalty(self) -> Tensor | float:
        """The penalty for leaving the source parameters; ETA has none."""
        return 0.0


@dataclass
class Eata(Eta):
    """ETA with a penalty for leaving the source parameters, weighted by their Fisher information."""

    fisher_weight: NonNegative = 2000.0  # β
    fisher_images: Count = 2000  # clean images from which the importance of parameters is estimated

    summary = "ETA with a Fisher penalty against forgetting"
    search_space = spaces(**Eta.search_space, fisher_weight=Log(10.0, 1e4))
    needs = "gradients, norm layers, clean images"

    @classmethod
    def presets(cls, target: Target) -> dict[str, Any]:
        return super().presets(target) | ({"fisher_weight": 1.0} if cifar_classes(target) else {})

    @learning()
    def setup(self, model: Model, source: Source) -> None:
        super().setup(model, source)
        self.fisher = [torch.zeros_like(p) for p in self.parameters]
        images = source.first(self.fisher_images)
        batches = math.ceil(len(images.images) / images.batch_size)
        for x in images.batches():
            self._add_fisher(x, batches)

    def _add_fisher(self, x: Tensor, batches: int) -> None:
        """Squared gradient of a batch's mean loss, as published: not the mean of squared gradients."""
        logits = self.model(x)
        loss = F.cross_entropy(logits, logits.detach().argmax(1))
        gradients = torch.autograd.grad(loss, self.parameters)
        for total, gradient in zip(self.fisher, gradients, strict=True):
            total.add_(gradient.square() / batches)

    def penalty(self) -> Tensor:
        """β·Σ F_j (θ_j − θ_j⁰)²."""
        terms = zip(self.fisher, self.parameters, self.initial["tensors"], strict=True)
        return self.fisher_weight * torch.stack([f @ (p - p0).square() for f, p, p0 in terms]).sum()


def sample_weight(h: Tensor, threshold: float) -> Tensor:
    """exp(E0 − H): one at the threshold, larger for more confident samples."""
    return torch.exp(threshold - h)
