"""One adaptation step without weights, data or GPU, to count the bytes that are live at its peak.

Methods that consume images take their steps on fake tensors. Methods that consume features get a fake
pass of the backbone and real random features: these are small, and support sets and convergence tests
then behave as in a run.

The step is counted when the method's state has its full size. A method may have a `fill()` that brings it
to that size with arbitrary values; otherwise steps are repeated until the state stops growing.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tta_bench.api import Method, Model, Source
from tta_bench.footprint.peak import ByteCounter, in_blocks, storage_bytes
from tta_bench.footprint.skeleton import cut_backbone_

SOURCE_IMAGES = 32
MOST_IMAGE_STEPS = 4
MOST_FEATURE_STEPS = 48


@dataclass(frozen=True)
class Usage:
    """FP32 bytes at the peak of a step; `state` is what the optimizer and the method keep between steps."""

    parameters: int
    inputs: int
    activations: int
    gradients: int = 0
    state: int = 0
    stored_bytes: int = 0  # the state as it would be saved, not rounded up to allocator blocks
    bounded: bool = True  # False: the state was still growing when counting stopped


@contextmanager
def garbage_on_demand() -> Iterator[None]:
    """Collect garbage only when asked: otherwise the peak depends on what the process did before."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def use_of_images(model: Model, method: Method, batch_size: int, counter: ByteCounter) -> Usage:
    """The memory of a step of a method that consumes images; called under fake tensors.

    A stateless method whose number of operations grows with the batch processes its images one by one. Its
    bytes are extrapolated linearly from one and two images to the whole batch.
    """
    side = (3, model.input_size, model.input_size)
    method.setup(model, Source(torch.rand(SOURCE_IMAGES, *side), batch_size))
    if method.memory != "none":
        return _use_of_batch(model, method, torch.rand(batch_size, *side), counter)
    one = _use_of_batch(model, method, torch.rand(1, *side), counter)
    operations = counter.operations
    two = _use_of_batch(model, method, torch.rand(2, *side), counter)
    if counter.operations > operations:
        return _extrapolated(one, two, batch_size)
    return _use_of_batch(model, method, torch.rand(batch_size, *side), counter)


def use_of_backbone(model: Model, method: Method, batch_size: int, counter: ByteCounter) -> tuple[Usage, int]:
    """The memory of the backbone's pass before a method that consumes features, and the features' width."""
    if method.batch_statistics(model):
        model.use_batch_statistics()
    x = torch.rand(batch_size, 3, model.input_size, model.input_size)
    counter.restart()
    width = model.features(x).shape[1]
    parameters, inputs = storage_bytes(_weights(model)), storage_bytes([x])
    return Usage(parameters, inputs, counter.peak_bytes - parameters - inputs), width


def use_of_features(model: Model, method: Method, batch_size: int, backbone: Usage, width: int) -> Usage:
    """The larger of two peaks: the backbone's pass plus the method's state, or the method's step plus the
    network's parameters."""
    with ByteCounter() as counter, torch.no_grad():
        cut_backbone_(model, width)
        head = list(model.classifier.parameters())
        counter.watch(head)
        without = counter.live_bytes
        method.setup(model, Source(torch.zeros(SOURCE_IMAGES, 3, 1, 1), batch_size))
        z = model.features(torch.empty(batch_size))
        bounded = _filled(method, z) or method.memory != "stream"
        if not bounded:  # one feature of every class
            bounded = _settle(lambda: method.step(model.head_weight), counter, MOST_FEATURE_STEPS)
        _settle(lambda: method.step(z), counter, MOST_FEATURE_STEPS)
        kept = counter.sizes_except([*head, z])
        state, step_peak = sum(map(in_blocks, kept)), counter.peak_bytes - without
    inputs, activations = backbone.inputs, backbone.activations
    if step_peak - state > inputs + activations:
        inputs = storage_bytes([z])
        activations = step_peak - state - inputs
    facts = dict(state=state, stored_bytes=sum(kept), bounded=bounded)
    return replace(backbone, inputs=inputs, activations=activations, **facts)


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


def _extrapolated(one: Usage, two: Usage, batch_size: int) -> Usage:
    """Linear extrapolation from one and two images to `batch_size`."""
    names = ("parameters", "inputs", "activations", "gradients", "state", "stored_bytes")
    pairs = {name: (getattr(one, name), getattr(two, name)) for name in names}
    return replace(two, **{name: a + (b - a) * (batch_size - 1) for name, (a, b) in pairs.items()})


def _filled(method: Method, batch: Tensor) -> bool:
    """Call the method's `fill`, if it has one, after a first step, which may create state."""
    fill = getattr(method, "fill", None)
    if fill is None:
        return False
    method.step(batch)
    fill()
    return True


def _settle(step: Callable[[], Tensor], counter: ByteCounter, most: int) -> bool:
    """Repeat a step until live bytes stop growing; return whether they did."""
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
