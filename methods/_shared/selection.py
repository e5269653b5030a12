"""The normalisation layers that ZOA and PACE adapt, and their parameters as one vector."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from tta_bench.api import Model, Norm
from tta_bench_methods._shared.gradient import affine_parameters


def adapted_norms(model: Model) -> list[Norm]:
    """Norm layers of the middle blocks, except those that end a residual branch.

    The first ⌈n/12⌉ of the n blocks of the first stage are frozen, and the last quarter of the stages, or
    of the blocks if there is one stage. Appendix D states this for three networks.
    """
    sizes = model.stage_sizes()
    first, last = math.ceil(sizes[0] / 12), len(model.blocks) - _last_quarter(sizes)
    return [n for n in model.norms() if first <= n.block < last and not model.closes_branch(n)]


def _last_quarter(stage_sizes: Sequence[int]) -> int:
    """The number of blocks in the last quarter of a network."""
    if len(stage_sizes) == 1:
        return stage_sizes[0] // 4
    return sum(stage_sizes[-max(1, len(stage_sizes) // 4) :])


class FlatParameters:
    """θ: the affine parameters of norm layers in one vector, of which the layers' parameters are views."""

    def __init__(self, norms: Sequence[Norm]) -> None:
        parameters = affine_parameters(norms)
        self.layer_sizes = [p.numel() for p in parameters]  # γ and β count as one layer each
        self.source = parameters_to_vector(parameters).detach().clone()  # θ⁰
        self.values = self.source.clone()
        vector_to_parameters(self.values, parameters)  # makes them views of `values`

    def write_(self, change: Tensor) -> None:
        """θ ← θ⁰ + change, in every layer at once."""
        self.values.copy_(self.source + change)
