"""COFA: features averaged with those of the image before, for streams of correlated labels (from UniTTA)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tta_bench.api import Choice, Method, Model, Source, spaces


@dataclass
class Cofa(Method):
    """Average each feature with that of the image before it; with `filter`, use the average only where it
    makes the prediction more confident."""

    filter: bool = True  # keep the average only where it makes the prediction more confident

    consumes = "features"
    outputs = "probabilities"
    memory = "stream"
    summary = "features averaged with the previous image's"
    search_space = spaces(filter=Choice(False, True))
    needs = "linear head"

    def setup(self, model: Model, source: Source) -> None:
        self.model = model
        self.reset()

    def reset(self) -> None:
        self.last: Tensor | None = None  # the feature of the image before this batch

    def step(self, z: Tensor) -> Tensor:
        before = torch.cat([z[:1] if self.last is None else self.last, z[:-1]])
        before = torch.where(before.isfinite().all(1, keepdim=True), before, z)
        if z.isfinite().all():
            self.last = z[-1:].clone()
        else:
            self.skip("features of a batch were not finite")
        alone, averaged = (self.model.head(f).softmax(1) for f in (z, (z + before) / 2))
        if not self.filter:
            return averaged
        surer = averaged.amax(1, keepdim=True) > alone.amax(1, keepdim=True)
        return torch.where(surer, averaged, alone)

    def state_dict(self) -> dict[str, Any]:
        return {"last": self.last}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.last = state["last"]
