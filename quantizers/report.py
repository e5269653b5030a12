"""Diagnostics by site: how wide, how often clipped, and how far from the float network."""

from __future__ import annotations

from collections import defaultdict
from copy import deepcopy
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor, nn

from tta_bench.api import Model
from tta_bench_quantizers.activations import ActivationQuantizer
from tta_bench_quantizers.attention import decompose_attention_
from tta_bench_quantizers.layers import QuantLayer, QuantMatmul
from tta_bench_quantizers.observe import BATCH, watching


@dataclass(frozen=True)
class SiteReport:
    """One site; what it does not have is None.

    `clip_rate` is the share of activations outside the representable range. Signal-to-quantisation-
    noise ratios are in dB against the float network: of the weight alone, and of the output with all
    the noise that has gathered up to it. A tensor quantised outside any layer is a site of its own.
    """

    site: str
    weight_bits: int | None
    activation_bits: int | None
    weight_scale: tuple[float, float] | None  # least, greatest
    activation_scale: tuple[float, float] | None
    clip_rate: float | None
    weight_snr_db: float | None
    output_snr_db: float | None


@torch.no_grad()
def site_report(quantised: Model, floating: Model, images: Tensor) -> list[SiteReport]:
    """Reports of all sites in the order of the network's modules; both models stay as they are."""
    quantised, floating = deepcopy(quantised), deepcopy(floating)
    decompose_attention_(floating.net)
    sites = _sites(quantised)
    clips = _clip_rates(quantised, sites, images)
    noise = _output_snr(quantised, floating, [s for s in sites if _is_product(sites[s])], images)
    return [_report(name, m, clips.get(name), noise.get(name), floating) for name, m in sites.items()]


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


def _clip_rates(model: Model, sites: dict[str, nn.Module], images: Tensor) -> dict[str, float]:
    """Share of clipped activations by site."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    handles = []
    for site, module in sites.items():

        def count(m: nn.Module, inputs: tuple[Tensor, ...], site: str = site) -> None:
            counts[site][0] += int(m.clipped(inputs[0]).sum())  # type: ignore[operator]
            counts[site][1] += inputs[0].numel()

        handles += [q.register_forward_pre_hook(count) for q in _quantizers(module)]
    for batch in images.split(BATCH):
        model(batch)
    for handle in handles:
        handle.remove()
    return {site: clipped / total for site, (clipped, total) in counts.items()}


def _output_snr(quantised: Model, floating: Model, sites: list[str], images: Tensor) -> dict[str, float]:
    """dB by site: the float output's energy over that of the difference."""
    energy: dict[str, list[float]] = {site: [0.0, 0.0] for site in sites}
    for batch in images.split(BATCH):
        exact, noisy = (_outputs(model, sites, batch) for model in (floating, quantised))
        for site in sites:
            energy[site][0] += float(exact[site].square().sum())
            energy[site][1] += float((exact[site] - noisy[site]).square().sum())
    return {site: _decibel(*pair) for site, pair in energy.items()}


def _outputs(model: Model, sites: list[str], batch: Tensor) -> dict[str, Tensor]:
    """Outputs by site; cloned, as a residual sum may reuse their memory."""
    seen: dict[str, Tensor] = {}
    with watching(model.net, sites, lambda site, _, out: seen.update({site: out.clone()})):
        model(batch)
    return seen


def _report(
    site: str, module: nn.Module, clip_rate: float | None, snr: float | None, floating: Model
) -> SiteReport:
    quantizers = _quantizers(module)
    scales = torch.cat([q.scales() for q in quantizers]) if quantizers else None
    layer = module if isinstance(module, QuantLayer) else None
    return SiteReport(
        site=site,
        weight_bits=layer.bits if layer else None,
        activation_bits=quantizers[0].bits if quantizers else None,
        weight_scale=_span(layer.scale) if layer else None,
        activation_scale=_span(scales),
        clip_rate=clip_rate,
        weight_snr_db=_weight_snr(layer, floating.net.get_submodule(site)) if layer else None,
        output_snr_db=snr,
    )


def _span(values: Tensor | None) -> tuple[float, float] | None:
    return None if values is None else (float(values.min()), float(values.max()))


def _weight_snr(layer: QuantLayer, floating: nn.Module) -> float:
    """dB, in the coordinates in which the weight was quantised."""
    exact = floating.get_parameter("weight")
    if layer.column_scale is not None:
        exact = exact * layer.column_scale
    noise = (exact - layer.weight).square().sum()
    return _decibel(float(exact.square().sum()), float(noise))


def _decibel(signal: float, noise: float) -> float:
    if noise == 0:
        return inf
    return float(10 * torch.log10(torch.tensor(signal / noise)))
