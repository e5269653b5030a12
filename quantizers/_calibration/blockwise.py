"""Calibration data of a transformer, one block at a time, in one forward and one backward pass.

The forward pass keeps only the input of each block. Then, from the head down, every block runs once more
with hooks at its sites and, if there is a loss, passes its gradient to the block below. So only the tensors
of one block are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div, log_softmax

from tta_bench.api import Model
from tta_bench_quantizers._calibration.observers import BATCH, observing
from tta_bench_quantizers._calibration.site_data import Collector, SiteData

GradMode: TypeAlias = Literal["fisher", "released", "mse"]
Loss: TypeAlias = Callable[[Tensor], Tensor]  # of logits
Segment: TypeAlias = Callable[[Tensor], Tensor]


def collect(
    model: Model, sites: Iterable[str], images: Tensor, rows_per_image: int, loss: Loss | None
) -> Iterator[dict[str, SiteData]]:
    """Data of the sites, grouped by block, from the head down to the stem."""
    sites = list(sites)
    segments = _segments(model)
    states = _forward(segments, images)
    grads: list[Tensor] = []
    while segments:
        seen = Collector(model.net, rows_per_image)
        with observing(model.net, sites, seen.see):
            grads = _backward(segments.pop(), states.pop(), loss, grads, seen)
        yield seen.finish()


def gradient_loss(mode: GradMode) -> Loss | None:
    """The loss whose gradient weights output errors; None: all errors have the same weight."""
    if mode == "mse":
        return None
    if mode == "released":
        return _loss_to_itself
    rng = torch.Generator().manual_seed(0)

    def fisher(logits: Tensor) -> Tensor:
        """Cross-entropy to a label drawn from the network's own softmax."""
        labels = torch.multinomial(logits.detach().softmax(1), 1, generator=rng)
        return cross_entropy(logits, labels.squeeze(1), reduction="sum")

    return fisher


def _loss_to_itself(logits: Tensor) -> Tensor:
    """KL to the same, unquantised network: its gradient is rounding noise, as in the released code."""
    target = logits.detach().softmax(1)
    return kl_div(log_softmax(logits, 1), target, reduction="batchmean")


def _segments(model: Model) -> list[Segment]:
    def first(x: Tensor) -> Tensor:
        return model.enter(model.stem(x))

    def last(hidden: Tensor) -> Tensor:
        return model.head(model.pool(hidden))

    return [first, *model.blocks, last]


@torch.no_grad()
def _forward(segments: list[Segment], images: Tensor) -> list[list[Tensor]]:
    """The input of each segment, by micro-batch."""
    states = [list(images.split(BATCH))]
    for segment in segments[:-1]:
        states.append([segment(x) for x in states[-1]])
    return states


def _backward(
    segment: Segment, state: list[Tensor], loss: Loss | None, grads: list[Tensor], seen: Collector
) -> list[Tensor]:
    """Run a segment and collect its sites; return the gradients of its input if there is a loss."""
    below = []
    for index, x in enumerate(state):
        with torch.set_grad_enabled(loss is not None):
            x = x.detach().requires_grad_(loss is not None)
            out = segment(x)
            if loss is not None:
                torch.autograd.backward(out if grads else loss(out), grads[index] if grads else None)
                assert x.grad is not None
                below.append(x.grad)
        seen.collect()
    return below
