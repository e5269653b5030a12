"""T3A: class prototypes made from the stream (Iwasawa & Matsuo, 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from tta_bench.api import Choice, Count, Method, Model, Source, spaces
from tta_bench_methods._shared.gradient import entropy


@dataclass
class T3A(Method):
    """Average the `filter_k` most confident features of each class so far; -1 keeps them all."""

    # Supports of each class with the lowest entropy that are kept; -1: all.
    filter_k: Literal[-1] | Count = 20

    consumes = "features"
    memory = "stream"
    summary = "class prototypes from confident features"
    search_space = spaces(filter_k=Choice(1, 5, 20, 50, 100, -1))
    needs = "linear head"

    def batch_statistics(self, model: Model) -> bool:
        return bool(model.batch_norms())  # as in ZOA's released code, T3A reads BN-adapted features

    def setup(self, model: Model, source: Source) -> None:
        self.model = model
        self.reset()

    def reset(self) -> None:
        """Start from the rows of the classifier, with the labels that it predicts for them."""
        width = self.model.head_weight.shape[1]
        self.supports: Tensor = self.model.head_weight.new_empty(0, width)
        self.labels: Tensor = torch.empty(0, dtype=torch.long, device=self.model.device)
        self.entropies: Tensor = self.model.head_weight.new_empty(0)
        rows = self.model.head_weight
        self._append(rows, rows @ rows.T + self.model.head_bias)

    def step(self, z: Tensor) -> Tensor:
        self._append(z, self.model.head(z))
        self._forget()
        return z @ self._prototypes().T

    def _append(self, z: Tensor, logits: Tensor) -> None:
        entropies = entropy(logits)
        finite = entropies.isfinite()
        if not finite.all():
            self.skip("features were not finite")
        self.supports = torch.cat([self.supports, F.normalize(z, dim=1)[finite]])
        self.labels = torch.cat([self.labels, logits.argmax(1)[finite]])
        self.entropies = torch.cat([self.entropies, entropies[finite]])

    def _forget(self) -> None:
        """Keep the `filter_k` lowest entropies of every class, oldest first."""
        if self.filter_k < 0:
            return
        order = self.entropies.argsort(stable=True)
        order = order[self.labels[order].argsort(stable=True)]  # by class, then by entropy
        sizes = torch.bincount(self.labels, minlength=self.model.num_classes)
        rank = torch.arange(len(order), device=order.device) - (sizes.cumsum(0) - sizes)[self.labels[order]]
        kept = order[rank < self.filter_k].sort().values
        self.supports, self.labels = self.supports[kept], self.labels[kept]
        self.entropies = self.entropies[kept]

    def _prototypes(self) -> Tensor:
        """The normalised sum of each class's supports; the zero vector for a class without any."""
        sums = self.supports.new_zeros(self.model.num_classes, self.supports.shape[1])
        return F.normalize(sums.index_add_(0, self.labels, self.supports), dim=1)

    def state_dict(self) -> dict[str, Any]:
        return {"supports": self.supports, "labels": self.labels, "entropies": self.entropies}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.supports, self.labels = state["supports"], state["labels"]
        self.entropies = state["entropies"]
