"""Which normalisation layers are adapted, and their parameters as one vector."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from tta_bench.api import Model, Norm


def adapted_norms(model: Model) -> list[Norm]:
    """Norm layers of the middle blocks that stand inside a residual branch.

    Frozen are the first ⌈n/12⌉ of the n blocks of the first stage and the last quarter: of the
    stages, or of the blocks where there is but one stage. Appendix D states this for three networks.
    """
    sizes = model.stage_sizes()
    first, last = math.ceil(sizes[0] / 12), len(model.blocks) - _last_quarter(sizes)
    return [n for n in model.norms() if first <= n.block < last and not model.closes_branch(n)]


def _last_quarter(stage_sizes: Sequence[int]) -> int:
    """How many blocks the last quarter of a network has."""
    if len(stage_sizes) == 1:
        return stage_sizes[0] // 4
    return sum(stage_sizes[-max(1, len(stage_sizes) // 4) :])


class FlatParameters:
    """θ: the affine parameters of norm layers, laid out in one vector that the layers read from."""

    def __init__(self, norms: Sequence[Norm]) -> None:
        parameters: list[nn.Parameter] = [p for norm in norms for p in norm.module.parameters(recurse=False)]
        self.layer_sizes = [p.numel() for p in parameters]  # γ and β count as a layer each
        self.source = parameters_to_vector(parameters).detach().clone()  # θ⁰
        self.values = self.source.clone()
        vector_to_parameters(self.values, parameters)  # from here on they are views of `values`

    def write_(self, change: Tensor) -> None:
        """θ ← θ⁰ + change, in every layer at once."""
        self.values.copy_(self.source + change)
