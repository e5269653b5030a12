"""The per-site report of our schemes: bits, scales and clip rates of their own modules."""

from __future__ import annotations

from collections import defaultdict
from copy import deepcopy
from dataclasses import replace

import torch
from torch import Tensor, nn

from tta_bench.api import Model, Quantizer, SiteReport, site_report
from tta_bench_quantizers._calibration.observers import BATCH
from tta_bench_quantizers._core.activations import ActivationQuantizer
from tta_bench_quantizers._core.attention import decompose_attention_
from tta_bench_quantizers._core.layers import QuantLayer, QuantMatmul


class SiteReporting(Quantizer):
    """Base of quantizers that are made of the modules in `_core`."""

    def report(self, quantised: Model, floating: Model, images: Tensor) -> list[SiteReport]:
        """One row for each layer, matrix product and activation quantiser between layers."""
        floating = deepcopy(floating)
        decompose_attention_(floating.net)
        sites = _sites(quantised)
        products = [name for name, module in sites.items() if _is_product(module)]
        rows = {row.site: row for row in site_report(quantised, floating, images, products)}
        clip_rates = _clip_rates(deepcopy(quantised), images)
        return [
            _completed(rows.get(name, SiteReport(name)), module, clip_rates.get(name))
            for name, module in sites.items()
        ]


def _sites(model: Model) -> dict[str, nn.Module]:
    """Quantised layers and products, and activation quantisers that belong to none of them."""
    sites: dict[str, nn.Module] = {}
    inside = set()
    for name, module in model.named_modules():
        if _is_product(module):
            inside |= set(module.modules())
        elif not isinstance(module, ActivationQuantizer) or module in inside:
            continue
        sites[name.removeprefix("net.")] = module
    return sites


def _is_product(module: nn.Module) -> bool:
    return isinstance(module, QuantLayer | QuantMatmul)


def _quantizers(module: nn.Module) -> list[ActivationQuantizer]:
    return [m for m in module.modules() if isinstance(m, ActivationQuantizer)]


@torch.no_grad()
def _clip_rates(model: Model, images: Tensor) -> dict[str, float]:
    """Share of clipped activations by site; hooks are left on the model."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for site, module in _sites(model).items():

        def count(m: nn.Module, inputs: tuple[Tensor, ...], site: str = site) -> None:
            counts[site][0] += int(m.clipped(inputs[0]).sum())  # type: ignore[operator]
            counts[site][1] += inputs[0].numel()

        for quantizer in _quantizers(module):
            quantizer.register_forward_pre_hook(count)
    for batch in images.split(BATCH):
        model(batch)
    return {site: clipped / total for site, (clipped, total) in counts.items()}


def _completed(row: SiteReport, module: nn.Module, clip_rate: float | None) -> SiteReport:
    """The row with the bits and the scales of its module."""
    quantizers = _quantizers(module)
    scales = torch.cat([q.scales() for q in quantizers]) if quantizers else None
    layer = module if isinstance(module, QuantLayer) else None
    return replace(
        row,
        weight_bits=layer.bits if layer else None,
        activation_bits=quantizers[0].bits if quantizers else None,
        weight_scale=_span(layer.scale) if layer else None,
        activation_scale=_span(scales),
        clip_rate=clip_rate,
    )


def _span(values: Tensor | None) -> tuple[float, float] | None:
    return None if values is None else (float(values.min()), float(values.max()))
