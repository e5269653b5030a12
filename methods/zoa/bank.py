"""The bank 𝒯 of domain vectors: which are stored, weighted and removed (Sec. 4.2, Appendix C)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from tta_bench_methods.zoa.differences import Differences

Policy = Literal["similar", "dequeue", "random", "keep_all"]
AlphaInit = Literal["derived", "one", "zero", "random"]
LOGIT_LIMIT = 10.0
NEARLY_ONE = 999.0  # odds of a weight of 0.999


@dataclass(frozen=True)
class BankOptions:
    """How a bank weights its vectors, and which it removes."""

    capacity: int
    policy: Policy
    alpha_init: AlphaInit
    temperature: float
    residual_limit: float  # w_m
    differences: Differences


class Bank:
    """Δ_0 = 0 and the stored Δ_j as rows of one matrix, with a logit b_j each.

    All tensors are replaced, never changed in place, so that snapshots need no copies.
    """

    def __init__(self, source: Tensor, layer_sizes: Sequence[int], options: BankOptions) -> None:
        self.layer_sizes, self.options = list(layer_sizes), options
        self.deltas = source.new_zeros(1, len(source))
        self.logits = source.new_zeros(1)
        self.similarity = source.new_empty(0, 0)  # at [older, newer]; elsewhere the value of no pair

    def __len__(self) -> int:
        """The number of stored vectors, without Δ_0."""
        return len(self.deltas) - 1

    def combine(self, logits: Tensor | None = None) -> Tensor:
        """Σ_j α_j Δ_j with α = softmax(T·b); b are the bank's logits unless others are given."""
        logits = self.logits if logits is None else logits
        return (self.options.temperature * logits).softmax(0) @ self.deltas

    def store_(self, residual: Tensor, rng: torch.Generator) -> Tensor:
        """Store Δ_t = θ − θ⁰ (Eq. 7); return the residual that leaves θ where it is (Eq. 8)."""
        total = self.combine() + residual
        options = self.options
        if options.policy != "keep_all" and len(self) >= options.capacity:
            self.remove_(self._redundant(rng))
            residual = total - self.combine()
        logit = self._new_logit(residual, rng)
        self._append_(total, logit)
        return total - self.combine()

    def remove_(self, index: int) -> None:
        """Remove the stored vector at `index`; Δ_0 has no index."""
        self.deltas = _without(self.deltas, index + 1)
        self.logits = _without(self.logits, index + 1)
        if len(self.similarity):
            row = len(self.similarity) - 1 if self.options.differences.stale_similarities else index
            self.similarity = _without(_without(self.similarity, row).T, row).T

    def _append_(self, delta: Tensor, logit: Tensor) -> None:
        if self.options.policy == "similar":
            column = self._cosines(delta)
            no_pair = self.options.differences.no_pair
            self.similarity = F.pad(self.similarity, (0, 1, 0, 1), value=no_pair)
            self.similarity[:-1, -1] = column
        self.deltas = torch.cat([self.deltas, delta[None]])
        self.logits = torch.cat([self.logits, logit[None]])

    def _cosines(self, delta: Tensor) -> Tensor:
        """Eq. 9: the cosine with every stored vector, averaged over layers."""
        layers = zip(self.deltas[1:].split(self.layer_sizes, 1), delta.split(self.layer_sizes), strict=True)
        return torch.stack([F.cosine_similarity(a, b, dim=-1) for a, b in layers]).mean(0)

    def _redundant(self, rng: torch.Generator) -> int:
        """The index of the vector to remove: the older of the most similar pair (Eq. 9 and 10)."""
        if self.options.policy == "random":
            return int(torch.randint(len(self), (), generator=rng))
        if self.options.policy == "dequeue":
            return 0
        return int(self.similarity.argmax()) // len(self)

    def _new_logit(self, residual: Tensor, rng: torch.Generator) -> Tensor:
        """b_t from the odds α_t/(1 − α_t) of the new vector (Appendix C)."""
        options, scaled = self.options, self.options.temperature * self.logits
        odds = self._odds(residual, rng)
        level = odds.log() + scaled.logsumexp(0)
        if options.alpha_init == "derived":
            level = level.maximum(scaled.max())
        return (level / options.temperature).clamp(-LOGIT_LIMIT, LOGIT_LIMIT)

    def _odds(self, residual: Tensor, rng: torch.Generator) -> Tensor:
        """α_t/(1 − α_t); derived: s − 1, so that (1 − α_t)·|ε| has a mean of at most w_m in every layer."""
        if self.options.alpha_init == "one":
            return residual.new_tensor(NEARLY_ONE)
        if self.options.alpha_init == "zero":
            return residual.new_tensor(1 / NEARLY_ONE)
        if self.options.alpha_init == "random":
            alpha = torch.rand((), generator=rng).to(residual.device)
            return alpha / (1 - alpha)
        magnitude = largest_layer_mean(residual, self.layer_sizes)
        return (magnitude / self.options.residual_limit).clamp_min(1) - 1

    def fill_(self) -> None:
        """Fill the bank with zero vectors."""
        rows, capacity = self.options.capacity + 1, self.options.capacity
        self.deltas = self.deltas.new_zeros(rows, self.deltas.shape[1])
        self.logits = self.logits.new_zeros(rows)
        if self.options.policy == "similar":
            self.similarity = self.similarity.new_zeros(capacity, capacity)

    def state_dict(self) -> dict[str, Any]:
        """The bank as tensors."""
        return {"deltas": self.deltas, "logits": self.logits, "similarity": self.similarity}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state of `state_dict`."""
        self.deltas, self.logits = state["deltas"], state["logits"]
        self.similarity = state["similarity"]


def largest_layer_mean(vector: Tensor, layer_sizes: Sequence[int]) -> Tensor:
    """The largest of the layers' mean magnitudes."""
    return torch.stack([part.abs().mean() for part in vector.split(list(layer_sizes))]).max()


def _without(rows: Tensor, index: int) -> Tensor:
    """The rows without the one at `index`."""
    return torch.cat([rows[:index], rows[index + 1 :]])
