"""One adaptation step without weights, data or GPU, for the bytes that are live at its peak.

Methods that consume images take their steps on fake tensors. Those that consume features get a fake
pass of the backbone, and real random features: these are small, and support sets and convergence
tests then behave as they do in a run.

A step counts once the method's state has its full size. A method may have a `fill()` that brings it
there with arbitrary values; otherwise steps are repeated until one leaves nothing more behind.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tta_bench.api import Method, Model, Source
from tta_bench.bytecount import ByteCounter, in_blocks, storage_bytes
from tta_bench.standin import cut_backbone_

SOURCE_IMAGES = 32
MOST_IMAGE_STEPS = 4
MOST_FEATURE_STEPS = 48


@dataclass(frozen=True)
class Usage:
    """FP32 bytes at the peak of a step; `state` is what optimizer and method keep between steps."""

    parameters: int
    inputs: int
    activations: int
    gradients: int = 0
    state: int = 0
    stored_bytes: int = 0  # the state as it would be saved: no allocator blocks
    bounded: bool = True  # False: the state still grew when counting stopped

    @property
    def peak_bytes(self) -> int:
        """All that is live at the peak."""
        return self.parameters + self.inputs + self.activations + self.gradients + self.state


@contextmanager
def garbage_on_demand() -> Iterator[None]:
    """No collection but ours: tensors in cycles would die at moments that depend on the process's past."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def use_of_images(model: Model, method: Method, batch_size: int, counter: ByteCounter) -> Usage:
    """What a step of a method that consumes images needs; to be called among fake tensors.

    A method without memory whose operations grow with the batch goes through its images one by one:
    the bytes for one and for two of them are continued in a straight line to the whole batch.
    """
    side = (3, model.input_size, model.input_size)
    method.setup(model, Source(torch.rand(SOURCE_IMAGES, *side), batch_size))
    if method.memory != "none":
        return _use_of_batch(model, method, torch.rand(batch_size, *side), counter)
    one = _use_of_batch(model, method, torch.rand(1, *side), counter)
    operations = counter.operations
    two = _use_of_batch(model, method, torch.rand(2, *side), counter)
    if counter.operations > operations:
        return _continued(one, two, batch_size)
    return _use_of_batch(model, method, torch.rand(batch_size, *side), counter)


def use_of_backbone(model: Model, method: Method, batch_size: int, counter: ByteCounter) -> tuple[Usage, int]:
    """What the pass that feeds a consumer of features needs, and the features' width."""
    if method.batch_statistics(model):
        model.use_batch_statistics()
    x = torch.rand(batch_size, 3, model.input_size, model.input_size)
    counter.restart()
    width = model.features(x).shape[1]
    parameters, inputs = storage_bytes(_weights(model)), storage_bytes([x])
    return Usage(parameters, inputs, counter.peak_bytes - parameters - inputs), width


def use_of_features(model: Model, method: Method, batch_size: int, backbone: Usage, width: int) -> Usage:
    """What backbone and method need: the backbone's peak with the method's state beside it, or the
    step's peak with the parameters beside it, whichever is larger."""
    with ByteCounter() as counter, torch.no_grad():
        cut_backbone_(model, width)
        head = list(model.classifier.parameters())
        counter.watch(head)
        without = counter.live_bytes
        method.setup(model, Source(torch.zeros(SOURCE_IMAGES, 3, 1, 1), batch_size))
        z = model.features(torch.empty(batch_size))
        bounded = (
            _filled(method, z) or method.memory != "stream" or _filled_by_classes(model, method, counter)
        )
        _settle(lambda: method.step(z), counter, MOST_FEATURE_STEPS)
        kept = counter.sizes_except([*head, z])
        state, step_peak = sum(map(in_blocks, kept)), counter.peak_bytes - without
    inputs, activations = backbone.inputs, backbone.activations
    if step_peak - state > inputs + activations:
        inputs = storage_bytes([z])
        activations = step_peak - state - inputs
    return Usage(
        backbone.parameters,
        inputs,
        activations,
        state=state,
        stored_bytes=sum(kept),
        bounded=bounded,
    )


def _use_of_batch(model: Model, method: Method, x: Tensor, counter: ByteCounter) -> Usage:
    _filled(method, x)
    bounded = _settle(lambda: method.step(x), counter, MOST_IMAGE_STEPS)
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    kept = counter.sizes_except([*_weights(model), *gradients, x])
    parts = [storage_bytes(tensors) for tensors in (_weights(model), [x], gradients)]
    state = sum(map(in_blocks, kept))
    return Usage(
        parameters=parts[0],
        inputs=parts[1],
        activations=counter.peak_bytes - sum(parts) - state,
        gradients=parts[2],
        state=state,
        stored_bytes=sum(kept),
        bounded=bounded,
    )


def _continued(one: Usage, two: Usage, batch_size: int) -> Usage:
    """The straight line through one and two images, at `batch_size`."""
    names = ("parameters", "inputs", "activations", "gradients", "state", "stored_bytes")
    pairs = {name: (getattr(one, name), getattr(two, name)) for name in names}
    return replace(two, **{name: a + (b - a) * (batch_size - 1) for name, (a, b) in pairs.items()})


def _filled(method: Method, batch: Tensor) -> bool:
    """Let a method that has a `fill` fill its state, after a step: some state only comes with the first."""
    fill = getattr(method, "fill", None)
    if fill is None:
        return False
    method.step(batch)
    fill()
    return True


def _filled_by_classes(model: Model, method: Method, counter: ByteCounter) -> bool:
    """Step on one feature of every class until the state stops growing; tell whether it did."""
    return _settle(lambda: method.step(model.head_weight), counter, MOST_FEATURE_STEPS)


def _settle(step: Callable[[], Tensor], counter: ByteCounter, most: int) -> bool:
    """Repeat a step until it leaves no more behind than there was before; tell whether it came to that."""
    for _ in range(most):
        gc.collect(1)
        before = counter.live_bytes
        counter.restart()
        step()
        gc.collect(1)
        if counter.live_bytes <= before:
            return True
    return False


def _weights(model: Model) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()]
