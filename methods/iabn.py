"""IABN with PBRS: NOTE without its gradient step (Gong et al., 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tta_bench.api import Choice, Count, Fraction, Log, Method, Model, NonNegative, Seed, Source, spaces
from tta_bench_methods._shared.image_memory import PbrsMemory
from tta_bench_methods._shared.norms.instance_aware import InstanceAwareNorm
from tta_bench_methods._shared.norms.running import remember_, replace_batch_norms_, without_batch_norm


@dataclass
class Iabn(Method):
    """Instance-aware batch norm; its running statistics follow a memory with equal shares of all classes.

    After every `capacity` images the memory makes one pass, from which the statistics are learnt.
    """

    k: NonNegative = 4.0  # standard errors by which an image may differ without being corrected
    momentum: Fraction = 0.01  # weight of the memory's statistics
    capacity: Count = 64  # images in the memory
    seed: Seed = 2020  # of the random draws; filled with the seed of the cell

    family = "forward-only"
    memory = "stream"
    replaces_norms = True
    summary = "instance-aware batch norm, statistics of a balanced memory"
    search_space = spaces(k=Choice(2, 3, 4, 6, 8), momentum=Log(1e-3, 0.3))
    forwards, passes_shown = 2, "≈2/0"
    needs = "BatchNorm2d"

    def unsupported(self, model: Model) -> str | None:
        return without_batch_norm(model) or super().unsupported(model)

    def setup(self, model: Model, source: Source) -> None:
        self.model = model
        self.layers = replace_batch_norms_(model, lambda n: InstanceAwareNorm(n, self.k, self.momentum))
        self.reset()

    def reset(self) -> None:
        self.images = PbrsMemory(self.capacity, self.seed)
        for layer in self.layers:
            layer.reset()

    def step(self, x: Tensor) -> Tensor:
        return torch.cat([self._part(part) for part in self.images.parts(x)])

    def _part(self, x: Tensor) -> Tensor:
        """Predict images and collect them; learn if the memory is due."""
        logits = self.model(x)
        if not logits.isfinite().all():
            self.skip("logits were not finite")
            return logits
        for image, label in zip(x, logits.argmax(1), strict=True):
            self.images.offer_(image, int(label))
        if self.images.arrived % self.capacity == 0:
            self._learn_()
        return logits

    def _learn_(self) -> None:
        for layer in self.layers:
            layer.learning = True
        self.model(self.images.batch())
        for layer in self.layers:
            layer.learning = False
        if not remember_(self.layers):
            self.skip("the statistics of the memory were not finite")

    def fill(self) -> None:
        """Fill the memory with black images, for byte counts."""
        side = self.model.input_size
        self.images.fill_(torch.zeros(3, side, side, device=self.model.device))

    def state_dict(self) -> dict[str, Any]:
        return {"running": [layer.running for layer in self.layers], "images": self.images.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.images.load_state_dict(state["images"])
        for layer, running in zip(self.layers, state["running"], strict=True):
            layer.running = running
