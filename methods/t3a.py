"""T3A: a classifier of prototypes grown from the stream (Iwasawa & Matsuo, 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from tta_bench.api import Choice, Count, Method, Model, Source, spaces


@dataclass
class T3A(Method):
    """Per class, average the `filter_k` most certain features seen so far; -1 keeps them all."""

    filter_k: Literal[-1] | Count = 20

    consumes = "features"
    memory = "stream"
    summary = "class prototypes from confident features"
    search_space = spaces(filter_k=Choice(1, 5, 20, 50, 100, -1))
    needs = "linear head"

    def batch_statistics(self, model: Model) -> bool:
        return bool(model.batch_norms())  # as released with ZOA: T3A sits on BN-adapted features

    def setup(self, model: Model, source: Source) -> None:
        self.model = model
        self.reset()

    def reset(self) -> None:
        """Start from the rows of the classifier, labelled as it labels them itself."""
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
        p = logits.softmax(1)
        entropy = -(p * logits.log_softmax(1)).sum(1)
        finite = entropy.isfinite()
        if not finite.all():
            self.skip("features were not finite")
        self.supports = torch.cat([self.supports, F.normalize(z, dim=1)[finite]])
        self.labels = torch.cat([self.labels, logits.argmax(1)[finite]])
        self.entropies = torch.cat([self.entropies, entropy[finite]])

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
        """Unit sums of each class's supports; a class without any has the zero vector."""
        sums = self.supports.new_zeros(self.model.num_classes, self.supports.shape[1])
        return F.normalize(sums.index_add_(0, self.labels, self.supports), dim=1)

    def state_dict(self) -> dict[str, Any]:
        return {"supports": self.supports, "labels": self.labels, "entropies": self.entropies}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.supports, self.labels = state["supports"], state["labels"]
        self.entropies = state["entropies"]
