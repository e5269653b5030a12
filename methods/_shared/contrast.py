"""The contrastive loss of RMT and SANTA: an image, its augmentation and the nearest class prototype."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tta_bench.api import Model, Source

WIDTH = 128
TEMPERATURE = 0.1


class Contrast:
    """Prototypes are mean features of the clean images of each predicted class."""

    def __init__(self, model: Model, source: Source, seed: int) -> None:
        with torch.no_grad():
            z = torch.cat([model.features(x) for x in source.batches()])
            labels = model.head(z).argmax(1)
        present = labels.unique()
        self.prototypes = torch.stack([z[labels == label].mean(0) for label in present])
        rng = torch.Generator().manual_seed(seed)
        self.projector = [*dense(z.shape[1], rng, model), *dense(WIDTH, rng, model)]

    def project(self, z: Tensor) -> Tensor:
        """Unit vectors behind a layer of 128 units and another one."""
        first, bias, second, offset = self.projector
        return F.normalize(F.linear(F.linear(z, first, bias).relu(), second, offset), dim=1)

    def loss(self, z: Tensor, view: Tensor) -> Tensor:
        """Mean of −log of the share of each positive among the 3B − 1 others."""
        near = F.cosine_similarity(z.detach()[:, None], self.prototypes[None], dim=2).argmax(1)
        rows = self.project(torch.cat([self.prototypes[near], z, view]))
        itself = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
        log_share = (rows @ rows.T / TEMPERATURE).masked_fill(itself, -torch.inf).log_softmax(1)
        image = torch.arange(len(rows), device=rows.device) % len(z)
        positive = (image[:, None] == image[None]) & ~itself
        return -(log_share.masked_fill(~positive, 0).sum(1) / 2).mean()


def dense(width: int, rng: torch.Generator, model: Model) -> list[nn.Parameter]:
    """Weight and bias of a layer of 128 units, uniform within ±1/√width."""
    shapes = ((WIDTH, width), (WIDTH,))
    draws = [(2 * torch.rand(shape, generator=rng) - 1) / math.sqrt(width) for shape in shapes]
    return [nn.Parameter(draw.to(model.mean)) for draw in draws]
