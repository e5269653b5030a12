"""DeYO: entropy minimisation on samples whose prediction depends on shape (Lee et al., 2024)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tta_bench.api import (
    Count,
    Log,
    Lt,
    Model,
    Momentum,
    NonNegative,
    Seed,
    Source,
    Target,
    Uniform,
    spaces,
)
from tta_bench_methods._shared.gradient import (
    EarlyNormMethod,
    FirstPassMethod,
    derived_seed,
    entropy,
    mean_over,
)


@dataclass
class DeYO(FirstPassMethod, EarlyNormMethod):
    """Minimise the weighted entropy of samples that are confident and whose predicted label loses
    probability (PLPD) when the image's tiles are shuffled; predict with the parameters before the step."""

    lr: NonNegative = 1e-3  # for 64 images; see lr_for_batch
    momentum: Momentum = 0.9  # momentum of SGD
    margin: NonNegative = 0.5  # only samples below this entropy, in units of ln C, are used
    weight_margin: NonNegative = 0.4  # E0, in units of ln C: the entropy at which a sample has weight one
    plpd_above: Annotated[float, Lt(1)] = 0.2  # τ; no probability drops by more than 1
    tiles: Count = 4  # along each side
    reweight: bool = True  # weight samples by entropy and PLPD; false: all weigh the same
    seed: Seed = 2020  # of the random draws; filled with the seed of the cell

    summary = "entropy descent on samples that rely on shape"
    search_space = spaces(lr=Log(1e-5, 1e-2), margin=Uniform(0.2, 0.8), plpd_above=Uniform(0.05, 0.5))
    forwards, backwards, passes_shown = 2, 1, "≤2/≤1"
    remembers = (*EarlyNormMethod.remembers, "batches")

    @classmethod
    def presets(cls, target: Target) -> dict[str, Any]:
        return {"lr": 2.5e-4, "plpd_above": 0.3} if target.family == "resnet" else {}

    def unsupported(self, model: Model) -> str | None:
        if self.tiles > model.input_size:
            side = f"{model.name} reads {model.input_size} pixels a side"
            return f"cuts images into {self.tiles} tiles a side, and {side}"
        return super().unsupported(model)

    def setup(self, model: Model, source: Source) -> None:
        self.batches = 0
        self.log_classes = math.log(model.num_classes)
        super().setup(model, source)

    def adapt(self, x: Tensor) -> Tensor:
        self.batches += 1
        logits = self.model(x)
        if self.finite(logits):
            self.learn(x, logits)
        return logits

    def learn(self, x: Tensor, logits: Tensor) -> None:
        """Take a step on the samples that pass both filters, if there are any."""
        h = entropy(logits)
        sure = h < self.margin * self.log_classes
        if not sure.any():
            return
        h, drop = h[sure], self.probability_drop(x[sure], logits[sure].detach())
        kept = drop > self.plpd_above
        if self.finite(drop) and kept.any():
            self.descend(mean_over(self.sample_weight(h.detach(), drop) * h, kept))

    @torch.no_grad()
    def probability_drop(self, x: Tensor, logits: Tensor) -> Tensor:
        """PLPD: the probability that the predicted label loses when tiles are shuffled."""
        rng = torch.Generator().manual_seed(derived_seed(self.seed, self.batches))
        shuffled = self.model(shuffle_tiles(x, self.tiles, rng))
        label = logits.argmax(1, keepdim=True)
        return (logits.softmax(1) - shuffled.softmax(1)).gather(1, label).squeeze(1)

    def sample_weight(self, h: Tensor, drop: Tensor) -> Tensor:
        """exp(E0 − H) + exp(PLPD)."""
        if not self.reweight:
            return torch.ones_like(h)
        return torch.exp(self.weight_margin * self.log_classes - h) + torch.exp(drop)


def shuffle_tiles(x: Tensor, tiles: int, rng: torch.Generator) -> Tensor:
    """Images cut into tiles × tiles, the tiles of each image in its own random order."""
    n, c, height, width = x.shape
    h, w = height // tiles, width // tiles
    fitting = resize(x, h * tiles, w * tiles)
    cut = fitting.view(n, c, tiles, h, tiles, w).permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
    order = torch.rand(n, tiles * tiles, generator=rng).argsort(1).to(x.device)
    cut = cut[torch.arange(n, device=x.device)[:, None], order]
    rows = cut.unflatten(1, (tiles, tiles)).permute(0, 3, 1, 4, 2, 5)
    return resize(rows.reshape(n, c, h * tiles, w * tiles), height, width)


def resize(x: Tensor, height: int, width: int) -> Tensor:
    """Images resized; unchanged if they have that size."""
    if x.shape[2:] == (height, width):
        return x
    return F.interpolate(x, (height, width), mode="bilinear", antialias=True)
