"""LAME: Laplacian adjusted maximum-likelihood estimation (Boudiaf et al., 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from tta_bench.api import Choice, Count, Method, spaces

MAX_ITERATIONS = 100
TOLERANCE = 1e-8


@dataclass
class Lame(Method):
    """Smooth predictions over neighbours in feature space; the model does not change."""

    affinity: Literal["knn", "rbf", "linear"] = "knn"  # how the affinity of two features is measured
    k: Count = 5  # nearest neighbours; of `knn`, and for the width of `rbf`
    symmetric: bool = True  # make the affinity matrix symmetric

    consumes = "features"
    memory = "batch"
    outputs = "probabilities"
    summary = "predictions smoothed over feature neighbours"
    search_space = spaces(affinity=Choice("knn", "rbf", "linear"), k=Choice(1, 3, 5, 10))
    needs = "features"
    min_batch_size = 2
    min_batch_reason = "one image has no neighbours"

    def step(self, z: Tensor) -> Tensor:
        p = self.model.head(z).softmax(1)
        if len(z) < self.min_batch_size:  # the rbf bandwidth would be 0/0
            self.skip(f"a batch of one image: {self.min_batch_reason}")
            return p
        return laplacian_optimization(-torch.log(p + 1e-10), self.affinity_matrix(z))

    def affinity_matrix(self, z: Tensor) -> Tensor:
        """A [B, B] between the normalised features."""
        z = F.normalize(z, dim=1)
        if self.affinity == "linear":
            a = z @ z.T
        else:
            distance = torch.cdist(z, z, compute_mode="donot_use_mm_for_euclid_dist")
            a = self._knn(distance) if self.affinity == "knn" else self._rbf(distance)
        return (a + a.T) / 2 if self.symmetric else a

    def _knn(self, distance: Tensor) -> Tensor:
        # An image is not its own neighbour. It is excluded by index, as a duplicate has distance zero, too.
        distance = distance.clone().fill_diagonal_(torch.inf)
        nearest = distance.topk(min(self.k, len(distance) - 1), largest=False).indices
        return torch.zeros_like(distance).scatter_(1, nearest, 1.0)

    def _rbf(self, distance: Tensor) -> Tensor:
        kth = distance.topk(min(self.k, len(distance)), largest=False).values[:, -1]
        sigma = kth.mean().clamp_min(torch.finfo(distance.dtype).tiny ** 0.5)
        return torch.exp(-(distance**2) / (2 * sigma**2))

    def reset(self) -> None:
        pass


def laplacian_optimization(unary: Tensor, affinity: Tensor) -> Tensor:
    """Fixed point of Y = softmax(-u + A·Y) by concave-convex steps; rows sum to one."""
    y = (-unary).softmax(1)
    previous = torch.inf
    for iteration in range(MAX_ITERATIONS):
        pairwise = affinity @ y
        y = (pairwise - unary).softmax(1)
        energy = (unary * y - pairwise * y + y * y.clamp_min(1e-20).log()).sum().item()
        if iteration > 1 and abs(energy - previous) <= TOLERANCE * abs(previous):
            break
        previous = energy
    return y
