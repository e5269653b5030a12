"""What the checks of methods and quantizers run on: a plugin, a small model and a short stream."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tta_bench.api import Calibration, Method, Model, Source

BATCH = 4
STEPS = 3
CONTAINERS = (nn.ModuleList, nn.ModuleDict)  # modules that are never called


class Bench:
    """Makes a plugin, copies a model, and holds the images of one short stream."""

    def __init__(self, make: Callable[[], Any], model: Model) -> None:
        self.make, self.pristine = make, model
        self.calibration: Calibration | None = None  # of a quantizer, once made
        self._backbones: dict[bool, Model] = {}  # key: whether BatchNorm uses batch statistics
        rng = torch.Generator().manual_seed(0)
        shape = (3, model.input_size, model.input_size)
        size = max(BATCH, getattr(make(), "min_batch_size", 1))
        base = torch.rand(STEPS * size, *shape, generator=rng)
        self.images = [(x * 0.5 + 0.1 * i) for i, x in enumerate(base.split(size))]
        self.clean = torch.rand(2 * BATCH, *shape, generator=rng)

    def ready(self, model: Model | None = None) -> Method:
        """A method after `setup` on its own copy of the model."""
        method: Method = self.make()
        model = model or copy.deepcopy(self.pristine)
        if method.consumes == "features" and method.batch_statistics(model):
            model.use_batch_statistics()
        torch.manual_seed(0)
        with torch.no_grad():
            method.setup(model, Source(self.clean, BATCH, model.device))
        return method

    def backbone(self, method: Method) -> Model:
        """The network that computes a method's features; the method has another copy."""
        by_batch = method.batch_statistics(self.pristine)
        if by_batch not in self._backbones:
            self._backbones[by_batch] = copy.deepcopy(self.pristine)
            if by_batch:
                self._backbones[by_batch].use_batch_statistics()
        return self._backbones[by_batch]

    def given(self, method: Method, x: Tensor) -> Tensor:
        """The input of a step as the harness makes it from images: the images or their features."""
        if method.consumes == "images":
            return x.clone()
        # Under fake tensors only the method's own model is on the fake device.
        backbone = self.backbone(method) if type(x) is Tensor else method.model
        return backbone.features(x)

    def step(self, method: Method, x: Tensor) -> Tensor:
        """The output of one step, called as the harness calls it."""
        torch.manual_seed(1)
        with torch.no_grad():
            return method.step(self.given(method, x))

    def stream(self, method: Method) -> list[Tensor]:
        """The outputs over the whole short stream."""
        return [self.step(method, x) for x in self.images]


def assert_same(a: list[Tensor], b: list[Tensor], what: str) -> None:
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        gap = (x - y).abs().max().item()
        assert torch.equal(x, y), f"{what}: batch {i} differs by up to {gap:.2g}"


def assert_all_reached(floating: Model, quantised: Model, x: Tensor) -> None:
    """Fail if a module that quantising has inserted or replaced is not called in a forward pass."""
    before = {name: type(module) for name, module in floating.named_modules()}
    placed = {
        name: module
        for name, module in quantised.named_modules()
        if before.get(name) is not type(module) and not isinstance(module, CONTAINERS)
    }
    called: set[nn.Module] = set()
    handles = [
        module.register_forward_hook(lambda module, *_: called.add(module)) for module in placed.values()
    ]
    with torch.no_grad():
        quantised(x)
    for handle in handles:
        handle.remove()
    idle = [name for name, module in placed.items() if module not in called]
    assert not idle, f"placed, and not reached in a forward pass: {', '.join(idle[:4])} ({len(idle)} in all)"
