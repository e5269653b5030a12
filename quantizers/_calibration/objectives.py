"""What a scale search minimises: the weighted output error of a layer or a matrix product."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from tta_bench_quantizers._calibration.site_data import SiteData


@dataclass(frozen=True)
class LayerObjective:
    """A layer as W x: weight [O, C], input rows x [T, C], output without bias [T, O]."""

    weight: Tensor
    x: Tensor
    target: Tensor
    importance: Tensor | None = None  # [T, O] or [T, 1]; None: all errors have the same weight

    @classmethod
    def of(cls, data: SiteData, layer: nn.Module) -> LayerObjective:
        """The objective of a float layer."""
        weight = layer.get_parameter("weight").detach().flatten(1)
        target = data.out.flatten(0, -2)
        if layer.bias is not None:
            target = target - layer.get_parameter("bias").detach()
        return cls(weight, data.a.flatten(0, -2), target, data.importance().flatten(0, -2))

    def subset_rows(self, rows: int) -> LayerObjective:
        """A random sample of the rows."""
        picks = sample_indices(len(self.x), rows)
        return replace(self, x=self.x[picks], target=self.target[picks])

    def subset_outputs(self, outputs: int) -> LayerObjective:
        """A random sample of the outputs."""
        picks = sample_indices(len(self.weight), outputs)
        return replace(self, weight=self.weight[picks], target=self.target[:, picks])


@dataclass(frozen=True)
class MatmulObjective:
    """A matrix product: a [B, H, r, d], b [B, H, d, n], target [B, H, r, n]."""

    a: Tensor
    b: Tensor
    target: Tensor
    importance: Tensor | None = None

    @classmethod
    def of(cls, data: SiteData) -> MatmulObjective:
        """The objective of a float product."""
        assert data.b is not None
        return cls(data.a.contiguous(), data.b.contiguous(), data.out, data.importance())


def sample_indices(total: int, count: int) -> Tensor:
    """Sorted indices of a random sample; always the same sample."""
    if count >= total:
        return torch.arange(total)
    rng = torch.Generator().manual_seed(0)
    return torch.randperm(total, generator=rng)[:count].sort().values


def per_head(values: Tensor) -> Tensor:
    """[H] as [1, H, 1, 1]: it broadcasts over images and over any number of tokens."""
    return values.view(1, -1, 1, 1)
