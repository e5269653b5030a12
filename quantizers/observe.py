"""What reaches the sites of a float network: calibration passes with hooks, and range observers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from tta_bench.api import Model

BATCH = 8  # images in one calibration pass
SAMPLE = 1 << 16  # values of a tensor that enter an error measure


@contextmanager
def watching(
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


class RangeObserver:
    """Least and greatest value seen, and a random sample of the values in between."""

    def __init__(self, batches: int) -> None:
        self.low, self.high = torch.tensor(torch.inf), torch.tensor(-torch.inf)
        self.rng = torch.Generator().manual_seed(0)
        self.share = max(SAMPLE // batches, 1)
        self.parts: list[Tensor] = []

    def see(self, x: Tensor) -> None:
        """Take note of one batch."""
        self.low, self.high = torch.minimum(self.low, x.min()), torch.maximum(self.high, x.max())
        picks = torch.randint(x.numel(), (min(self.share, x.numel()),), generator=self.rng)
        self.parts.append(x.flatten()[picks])

    def values(self) -> Tensor:
        """The sample."""
        return torch.cat(self.parts)


@torch.no_grad()
def observe_inputs(model: Model, sites: Iterable[str], images: Tensor) -> dict[str, RangeObserver]:
    """Ranges of the sites' inputs over the images."""
    batches = images.split(BATCH)
    seen = {site: RangeObserver(len(batches)) for site in sites}
    with watching(model.net, seen, lambda site, inputs, _: seen[site].see(inputs[0])):
        for batch in batches:
            model(batch)
    return seen
