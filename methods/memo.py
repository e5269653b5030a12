"""MEMO: marginal entropy minimisation over one image's augmentations (Zhang et al., 2022)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tta_bench.api import Count, Log, Model, NonNegative, Seed, Source, Target, spaces
from tta_bench_methods._shared.augmix import draw_recipe, make_views
from tta_bench_methods._shared.gradient import GradientMethod
from tta_bench_methods.bn_adapt import BnAdapt


@dataclass
class Memo(GradientMethod):
    """For each image: start from the source, take one step of all parameters on the entropy of the mean
    prediction over augmented views, predict the image, and discard the step.

    The same draws augment all images, so a prediction depends on its image only.
    """

    lr: NonNegative = 1e-5  # learning rate
    optimizer: Literal["adamw", "sgd"] = "adamw"  # which optimizer makes the step
    weight_decay: NonNegative = 0.01  # weight decay of the optimizer
    views: Count = 64  # augmented views of each image
    prior: NonNegative = 16.0  # N of the BatchNorm statistics, N/(N+1) source and 1/(N+1) batch
    seed: Seed = 2020  # of the random draws; filled with the seed of the cell

    memory = "none"
    summary = "entropy of an image's averaged views, episodic"
    search_space = spaces(lr=Log(1e-6, 1e-3))
    passes_shown = "65/64 an image"
    needs = "gradients"
    trains = "parameters"

    @classmethod
    def presets(cls, target: Target) -> dict[str, Any]:
        sgd = {"optimizer": "sgd", "lr": 2.5e-4, "weight_decay": 0.0}
        return sgd if target.family == "resnet" else {}

    def passes(self) -> tuple[int, int]:
        return self.views + 1, self.views

    def trainable(self, model: Model) -> list[nn.Parameter]:
        return list(model.parameters())

    def prepare_(self, model: Model, source: Source) -> None:
        PriorStatistics(variant="prior", prior=self.prior).setup(model, source)
        self.recipe = draw_recipe(self.views, self.seed)

    def new_optimizer(self) -> torch.optim.Optimizer:
        if self.optimizer == "sgd":
            return torch.optim.SGD(self.parameters, self.lr, weight_decay=self.weight_decay)
        return torch.optim.AdamW(self.parameters, self.lr, weight_decay=self.weight_decay)

    def adapt(self, x: Tensor) -> Tensor:
        return torch.cat([self.adapt_to(image) for image in x.split(1)])

    def adapt_to(self, image: Tensor) -> Tensor:
        """Logits of one image after one step on its views."""
        self.reset()
        self.descend(marginal_entropy(self.model(make_views(image, self.recipe))))
        with torch.no_grad():
            return self.model(image)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """There is no state between images."""


class PriorStatistics(BnAdapt):
    """BatchNorm statistics that count a batch as one image, and are constants for the gradient."""

    def blend(self, source: Tensor, running: Tensor, batch: Tensor, images: int, batches: int) -> Tensor:
        return super().blend(source, running, batch.detach(), 1, batches)


def marginal_entropy(logits: Tensor) -> Tensor:
    """Entropy of the mean prediction over views, computed in log space."""
    log_p = logits.log_softmax(1).logsumexp(0) - math.log(len(logits))
    return -(log_p.exp() * log_p).sum()
