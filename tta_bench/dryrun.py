"""One adaptation step without weights, data or GPU, for the bytes that are live at its peak.

Methods that consume images take their steps on fake tensors. Those that consume features get a fake
pass of the backbone and real random features: they are small, and support sets and convergence
tests then behave as they do in a run.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tta_bench.api import Method, Model, ModelSource, Source
from tta_bench.bytecount import ByteCounter, in_blocks, storage_bytes
from tta_bench.pretend import fake_tensors

SOURCE_IMAGES = 32
MOST_STEPS = 48


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


def skeleton(source: ModelSource) -> Model:
    """The model on the meta device: shapes alone, made in no time."""
    with torch.device("meta"):
        return source.skeleton().eval().requires_grad_(False)


@contextmanager
def dry() -> Iterator[ByteCounter]:
    """Fake tensors, counted, without gradients, and with garbage collected only when asked.

    The collector's own moments depend on the process's past, and tensors in cycles die by it.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        with fake_tensors(), ByteCounter() as counter, torch.no_grad():
            yield counter
    finally:
        if enabled:
            gc.enable()


def fake_(model: Model) -> Model:
    """Give a model on the meta device fake CPU tensors; those that share a storage still do."""
    known: dict[int, Tensor] = {}

    def replace(tensor: Tensor) -> Tensor:
        key = tensor.untyped_storage()._cdata
        if key not in known:
            known[key] = torch.empty_like(tensor, device="cpu")
        return known[key]

    return model._apply(replace)


def hold_first_input_(model: Model) -> None:
    """Let passes through an nn.Sequential of blocks hold its input, as its own `forward` does.

    Published figures come from the networks' `forward`, whose caller holds that tensor until the last
    block is done; our adapters step through the blocks and let it go early (ViT-B: 37 MiB less).
    """
    if isinstance(model.blocks, nn.Sequential):
        cls = type(model)
        model.__class__ = type(cls.__name__, (_HoldingFirstInput, cls), {})  # copies of it hold, too


class _HoldingFirstInput(Model):
    """Mixed into an adapter's class; its frames keep alive what they pass on."""

    def features(self, x: Tensor) -> Tensor:
        embedded = hidden = self.enter(self.stem(x))
        for block in self.blocks:
            hidden = block(hidden)
        del embedded
        return self.finish(hidden)

    def continue_from(self, hidden: Tensor, start: int = 0) -> tuple[list[Tensor], Tensor]:
        return super().continue_from(hidden, start)


def use_of_images(model: Model, method: Method, batch_size: int, counter: ByteCounter) -> Usage:
    """What a step of a method that consumes images needs, once its state has its full size.

    If its operations grow with the batch, it goes through its images one by one: then bytes of two
    and of three images are continued in a straight line, instead of waiting for the whole batch.
    """
    side = (3, model.input_size, model.input_size)
    method.setup(model, Source(torch.rand(SOURCE_IMAGES, *side), batch_size))
    if method.memory != "none" or batch_size <= 3:
        return _use_of_batch(model, method, torch.rand(batch_size, *side), counter)
    few = _use_of_batch(model, method, torch.rand(2, *side), counter)
    operations = counter.operations
    more = _use_of_batch(model, method, torch.rand(3, *side), counter)
    if counter.operations > operations:
        return _continued(few, more, batch_size)
    return _use_of_batch(model, method, torch.rand(batch_size, *side), counter)


def _use_of_batch(model: Model, method: Method, x: Tensor, counter: ByteCounter) -> Usage:
    bounded = _settle(lambda: method.step(x), counter)
    weights = [*model.parameters(), *model.buffers()]
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    kept = counter.sizes_except([*weights, *gradients, x])
    sizes = [storage_bytes(weights), storage_bytes([x]), storage_bytes(gradients)]
    state = sum(map(in_blocks, kept))
    return Usage(
        parameters=sizes[0],
        inputs=sizes[1],
        activations=counter.peak_bytes - sum(sizes) - state,
        gradients=sizes[2],
        state=state,
        stored_bytes=sum(kept),
        bounded=bounded,
    )


def _continued(few: Usage, more: Usage, batch_size: int) -> Usage:
    """The straight line through two and three images, at `batch_size`."""
    names = ("parameters", "inputs", "activations", "gradients", "state", "stored_bytes")
    a, b = ([getattr(use, name) for name in names] for use in (few, more))
    line = [two + (three - two) * (batch_size - 2) for two, three in zip(a, b, strict=True)]
    return Usage(*line, bounded=more.bounded)


def use_of_backbone(model: Model, method: Method, batch_size: int, counter: ByteCounter) -> tuple[Usage, int]:
    """What the pass that feeds a consumer of features needs, and the features' width."""
    if method.batch_statistics(model):
        model.use_batch_statistics()
    x = torch.rand(batch_size, 3, model.input_size, model.input_size)
    counter.restart()
    width = model.features(x).shape[1]
    parameters, inputs = storage_bytes([*model.parameters(), *model.buffers()]), storage_bytes([x])
    return Usage(parameters, inputs, counter.peak_bytes - parameters - inputs), width


def use_of_features(model: Model, method: Method, batch_size: int, backbone: Usage, width: int) -> Usage:
    """What a step on real features needs on top of the backbone, or in its place: the larger peak."""
    with ByteCounter() as counter, torch.no_grad():
        cut_backbone_(model, width)
        head = [*model.classifier.parameters()]
        counter.watch(head)
        before = counter.live_bytes
        method.setup(model, Source(torch.zeros(SOURCE_IMAGES, 3, 1, 1), batch_size))
        bounded = method.memory != "stream" or _settle(lambda: method.step(model.head_weight), counter)
        z = model.features(torch.empty(batch_size))
        _settle(lambda: method.step(z), counter)
        kept = counter.sizes_except([*head, z])
        state, step_peak = sum(map(in_blocks, kept)), counter.peak_bytes - before
    inputs = backbone.inputs
    activations = backbone.activations
    if backbone.parameters + step_peak > backbone.peak_bytes + state:
        inputs = storage_bytes([z])
        activations = step_peak - inputs - state
    return Usage(
        backbone.parameters, inputs, activations, 0, state, stored_bytes=sum(kept), bounded=bounded
    )


def cut_backbone_(model: Model, width: int) -> None:
    """Leave only the head real: features are random, and no image ever enters the network."""
    rng = torch.Generator().manual_seed(0)
    linear = model.classifier
    for name, tensor in list(linear.named_parameters()):
        real = torch.randn(tensor.shape, generator=rng)
        setattr(linear, name, nn.Parameter(real, requires_grad=False))
    model.head_weight, model.head_bias = linear.weight.detach(), linear.bias.detach()
    model.features = lambda x: torch.randn(len(x), width, generator=rng)  # type: ignore[method-assign]


def _settle(step: Callable[[], Tensor], counter: ByteCounter) -> bool:
    """Repeat a step until it leaves no more behind than there was before; tell whether it came to that."""
    for _ in range(MOST_STEPS):
        gc.collect(1)
        before = counter.live_bytes
        counter.restart()
        step()
        gc.collect(1)
        if counter.live_bytes <= before:
            return True
    return False
