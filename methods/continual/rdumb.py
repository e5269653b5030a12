"""RDumb: ETA that starts over after every so many batches (Press et al., 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tta_bench.api import Choice, Count, Model, Source, Target, spaces
from tta_bench_methods.continual.cifar import cifar_classes
from tta_bench_methods.eata import Eta


@dataclass
class RDumb(Eta):
    """ETA; before every N-th batch, parameters, optimizer and running prediction return to the source's."""

    reset_every: Count = 1000  # N, in batches, also those without a step

    summary = "ETA with resets at fixed intervals"
    search_space = spaces(**Eta.search_space, reset_every=Choice(10, 30, 100, 300, 1000, 3000))
    remembers = (*Eta.remembers, "batches")

    @classmethod
    def presets(cls, target: Target) -> dict[str, Any]:
        return super().presets(target) | ({"redundancy": 0.4} if cifar_classes(target) else {})

    def setup(self, model: Model, source: Source) -> None:
        self.batches = 0
        super().setup(model, source)

    def adapt(self, x: Tensor) -> Tensor:
        logits = super().adapt(x)
        self.batches += 1
        if self.batches % self.reset_every == 0:
            self.restore_({**self.initial, "batches": self.batches})
        return logits
