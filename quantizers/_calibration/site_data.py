"""Calibration data of one site of a float transformer: operands, output, gradient; all rows or a sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.functional import unfold

from tta_bench_quantizers._core.layers import QuantMatmul


@dataclass
class SiteData:
    """Images first, then heads if any, rows (tokens or patches) and channels last.

    `b` is the right operand of a product. `weight` is the square root of the number of rows that a
    sampled row represents. `low` and `high` are each operand's range over all rows, per head for a product.
    """

    a: Tensor
    b: Tensor | None
    out: Tensor
    grad: Tensor | None
    weight: Tensor
    low: tuple[Tensor, ...]
    high: tuple[Tensor, ...]

    def importance(self) -> Tensor:
        """Factors of the output errors. With a gradient that is zero everywhere all candidates would be
        equally good, so errors then have the same weight."""
        if self.grad is None:
            return self.weight
        peak = self.grad.abs().max()
        return self.weight if peak == 0 else self.grad / peak * self.weight

    def peaks(self) -> tuple[Tensor, ...]:
        """Greatest magnitude of each operand."""
        pairs = zip(self.low, self.high, strict=True)
        return tuple(torch.maximum(-low, high) for low, high in pairs)


@dataclass
class Collector:
    """Hooks keep the live tensors of a micro-batch; `collect` takes the sampled rows from them."""

    net: nn.Module
    rows_per_image: int  # 0: all
    live: dict[str, tuple[tuple[Tensor, ...], Tensor]] = field(default_factory=dict)
    parts: dict[str, list[SiteData]] = field(default_factory=dict)
    rng: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(0))

    def see(self, site: str, inputs: tuple[Tensor, ...], out: Tensor) -> None:
        """Keep the tensors of one call of a site."""
        if out.requires_grad:
            out.retain_grad()
        self.live[site] = (inputs, out)

    def collect(self) -> None:
        """Move the sampled rows of all live tensors to `parts`."""
        for site, (inputs, out) in self.live.items():
            part = self._cut(self.net.get_submodule(site), [t.detach() for t in inputs], out)
            self.parts.setdefault(site, []).append(part)
        self.live.clear()

    def _cut(self, module: nn.Module, inputs: list[Tensor], out: Tensor) -> SiteData:
        axes = (0, 2, 3) if isinstance(module, QuantMatmul) else ()  # a range per head
        result, grad = as_rows(out.detach(), module), None
        picks, weights = sample_rows(result.shape[-2], self.rows_per_image, self.rng)
        if out.grad is not None:
            grad = as_rows(out.grad, module)[..., picks, :]
        return SiteData(
            a=input_rows(inputs[0], module)[..., picks, :],
            b=inputs[1] if len(inputs) > 1 else None,
            out=result[..., picks, :],
            grad=grad,
            weight=weights[:, None].expand(*result.shape[:-2], -1, 1),
            low=tuple(t.amin(axes) for t in inputs),
            high=tuple(t.amax(axes) for t in inputs),
        )

    def finish(self) -> dict[str, SiteData]:
        """All micro-batches joined, by site."""
        return {site: _join(parts) for site, parts in self.parts.items()}


def as_rows(t: Tensor, module: nn.Module) -> Tensor:
    """[images, …, rows, channels]; a convolution's pixels and a pooled feature count as rows."""
    if isinstance(module, nn.Conv2d):
        return t.flatten(2).transpose(1, 2)
    return t.unsqueeze(1) if t.dim() == 2 else t


def input_rows(x: Tensor, module: nn.Module) -> Tensor:
    """The rows that a layer multiplies with its flattened weight: patches for a convolution."""
    if not isinstance(module, nn.Conv2d):
        return as_rows(x, module)
    geometry = (module.kernel_size, module.dilation, module.padding, module.stride)
    return unfold(x, *geometry).transpose(1, 2)  # type: ignore[arg-type]


def sample_rows(total: int, count: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Rows to keep, and the square root of how many rows each represents, for unbiased squared errors.

    Row 0 is always kept: it is the class token, and in the last block the only one with a gradient.
    """
    if count == 0 or count >= total:
        return torch.arange(total), torch.ones(total)
    others = torch.randperm(total - 1, generator=rng)[: count - 1] + 1
    weights = torch.full((count,), ((total - 1) / max(count - 1, 1)) ** 0.5)
    weights[0] = 1.0
    return torch.cat([torch.zeros(1, dtype=torch.long), others]), weights


def _join(parts: list[SiteData]) -> SiteData:
    return SiteData(
        a=torch.cat([p.a for p in parts]),
        b=_cat([p.b for p in parts]),
        out=torch.cat([p.out for p in parts]),
        grad=_cat([p.grad for p in parts]),
        weight=torch.cat([p.weight for p in parts]),
        low=tuple(torch.stack(c).amin(0) for c in zip(*(p.low for p in parts), strict=True)),
        high=tuple(torch.stack(c).amax(0) for c in zip(*(p.high for p in parts), strict=True)),
    )


def _cat(tensors: Sequence[Tensor | None]) -> Tensor | None:
    there = [t for t in tensors if t is not None]
    return torch.cat(there) if there else None
