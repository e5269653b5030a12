"""How many products of a network an engine computes in integers, site by site."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from tta_bench.api import Model

NETWORK = "Global"  # the counter's name of everything
FLOPS = 2  # of one product, which is added to a sum


@dataclass(frozen=True)
class IntegerProducts:
    """Products for one image: of the whole network, and of each site that an engine computes in integers.

    Convolutions, linear layers and matrix products count; scans and elementwise operations have no sites.
    """

    all: int
    by_site: Mapping[str, int]

    @property
    def share(self) -> float:
        """The share of the products that are computed in integers."""
        return sum(self.by_site.values()) / self.all


@torch.no_grad()
def integer_products(floating: Model, image: Tensor, sites: Iterable[str]) -> IntegerProducts:
    """The products of a pass of one image, given the sites that are computed in integers."""
    with FlopCounterMode(display=False) as counter:
        floating(image)
    counts = {name: sum(flops.values()) // FLOPS for name, flops in counter.get_flop_counts().items()}
    root = f"{type(floating).__name__}.net"
    return IntegerProducts(counts[NETWORK], {site: counts[f"{root}.{site}"] for site in sites})
