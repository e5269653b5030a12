"""Gaussians of hidden states, and the linear map from one to another."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

RIDGE = 1e-5  # added to variances, and the least eigenvalue


@dataclass(frozen=True)
class Gaussian:
    """Mean [d] and covariance [groups, c, c] of d = groups·c channels."""

    mean: Tensor
    covariance: Tensor

    @property
    def variance(self) -> Tensor:
        """Unbiased variance of every channel."""
        return self.covariance.diagonal(dim1=1, dim2=2).flatten() - RIDGE

    def finite(self) -> bool:
        """Whether all numbers are."""
        return bool(self.mean.isfinite().all() and self.covariance.isfinite().all())

    def towards(self, other: Gaussian, weight: float) -> Gaussian:
        """The weighted mean of both, `weight` for the other."""
        return Gaussian(self.mean.lerp(other.mean, weight), self.covariance.lerp(other.covariance, weight))

    def root(self, power: float) -> Tensor:
        """A power of the covariance."""
        values, vectors = torch.linalg.eigh(self.covariance)
        return (vectors * values.clamp_min(RIDGE).pow(power)[:, None, :]) @ vectors.mT


class GaussianSums:
    """The sums from which a Gaussian of many batches is made, in double precision."""

    def __init__(self, group: int) -> None:
        self.group = group
        self.count = 0
        self.total: Tensor | float = 0.0
        self.products: Tensor | float = 0.0

    def add_(self, rows: Tensor) -> None:
        """Take a batch in."""
        rows = rows.double()
        groups = grouped(rows, self.group)
        self.count += len(rows)
        self.total = self.total + rows.sum(0)
        self.products = self.products + groups.mT @ groups

    def gaussian(self, dtype: torch.dtype) -> Gaussian:
        """The Gaussian of all batches."""
        assert isinstance(self.total, Tensor)
        mean = self.total / self.count
        outer = grouped(mean[None], self.group)
        scatter = self.products - self.count * (outer.mT @ outer)
        return Gaussian(mean.to(dtype), _with_ridge(scatter / (self.count - 1)).to(dtype))


def gaussian_of(rows: Tensor, group: int) -> Gaussian:
    """Mean and unbiased covariance of rows."""
    mean = rows.mean(0)
    groups = grouped(rows - mean, group)
    return Gaussian(mean, _with_ridge(groups.mT @ groups / (len(rows) - 1)))


def grouped(rows: Tensor, group: int) -> Tensor:
    """[n, d] as [groups, n, c]. c is the largest divisor of d that is at most `group`; 0: one group."""
    width = rows.shape[1]
    size = next(c for c in range(min(group or width, width), 0, -1) if width % c == 0)
    return rows.unflatten(1, (-1, size)).transpose(0, 1)


def aligned(rows: Tensor, stream: Gaussian, mean: Tensor, root: Tensor, weight: float = 1.0) -> Tensor:
    """(1 − w)·x + w·((x − μ_t)·Σ_t^−½·Σ_s^½ + μ_s), with μ_s and Σ_s^½ given.

    It is one affine map, so no other tensor of the size of `rows` is needed.
    """
    transform = weight * (stream.root(-0.5) @ root)
    size = transform.shape[1]
    offset = weight * mean - (grouped(stream.mean[None], size) @ transform).transpose(0, 1).flatten()
    transform.diagonal(dim1=1, dim2=2).add_(1 - weight)
    return (grouped(rows, size) @ transform).transpose(0, 1).flatten(1).add_(offset)


def _with_ridge(covariance: Tensor) -> Tensor:
    return covariance + RIDGE * torch.eye(
        covariance.shape[1], dtype=covariance.dtype, device=covariance.device
    )
