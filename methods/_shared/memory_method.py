"""The base of gradient methods that learn from a memory of images."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tta_bench.api import Model
from tta_bench_methods._shared.gradient import GradientMethod
from tta_bench_methods._shared.image_memory import ImageMemory
from tta_bench_methods._shared.norms.running import RunningNorm


class MemoryMethod(GradientMethod):
    """Base of RoTTA, PeTTA and NOTE: `images` is the memory, `layers` are the norm layers whose statistics
    change. Both are saved and restored."""

    remembers = ("statistics", "kept")
    images: Any  # an ImageMemory

    @property
    def layers(self) -> list[RunningNorm]:
        """The layers with running statistics of all networks."""
        return running_norms(self.model)

    @property
    def statistics(self) -> list[Tensor]:
        """The running statistics of all layers."""
        return [layer.running for layer in self.layers]

    @statistics.setter
    def statistics(self, values: list[Tensor]) -> None:
        for layer, value in zip(self.layers, values, strict=True):
            layer.running = value

    @property
    def kept(self) -> dict[str, Any]:
        """The memory as plain data."""
        memory: ImageMemory = self.images
        return memory.state_dict()

    @kept.setter
    def kept(self, state: dict[str, Any]) -> None:
        self.images.load_state_dict(state)

    def fill(self) -> None:
        """Fill the memory with black images, for byte counts."""
        side = self.model.input_size
        self.images.fill_(torch.zeros(3, side, side, device=self.model.device))


def running_norms(*models: Model) -> list[RunningNorm]:
    """The layers of these networks that keep statistics of the stream."""
    return [module for model in models for module in model.modules() if isinstance(module, RunningNorm)]
