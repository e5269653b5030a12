"""Observers: calibration passes with hooks on the sites of a network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from tta_bench.api import Model
from tta_bench_quantizers._calibration.histogram import ValueHistogram

BATCH = 8  # images in one calibration pass


@contextmanager
def observing(
    net: nn.Module, sites: Iterable[str], see: Callable[[str, tuple[Any, ...], Any], None]
) -> Iterator[None]:
    """Call `see(site, inputs, output)` after every call of a site."""

    def hook(site: str) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
        return lambda _, inputs, output: see(site, inputs, output)

    handles = [net.get_submodule(s).register_forward_hook(hook(s)) for s in sites]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def observe_inputs(model: Model, sites: Iterable[str], images: Tensor) -> dict[str, ValueHistogram]:
    """Histograms of the sites' inputs over the images."""
    seen = {site: ValueHistogram() for site in sites}
    with observing(model.net, seen, lambda site, inputs, _: seen[site].see(inputs[0])):
        for batch in images.split(BATCH):
            model(batch)
    return seen
