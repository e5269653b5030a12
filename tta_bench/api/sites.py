"""What quantisation does to a network, site by site: the rows that `tta-bench quantize` prints.

A site is a module of the quantised network, known by its name in `model.net`: a layer, a matrix product, or
an activation quantiser that stands between layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from tta_bench.api.model import Model

BATCH_SIZE = 8


@dataclass(frozen=True)
class SiteReport:
    """One site; None where a value is unknown or does not apply.

    `clip_rate` is the share of activations outside the representable range. Signal-to-quantisation-noise
    ratios are in dB against the float network: `weight_snr_db` of the weight alone, `output_snr_db` of the
    output with all the noise of the layers before it.
    """

    site: str
    weight_bits: int | None = None
    activation_bits: int | None = None
    weight_scale: tuple[float, float] | None = None  # least, greatest
    activation_scale: tuple[float, float] | None = None
    clip_rate: float | None = None
    weight_snr_db: float | None = None
    output_snr_db: float | None = None


def site_report(
    quantised: Model, floating: Model, images: Tensor, sites: Iterable[str]
) -> Iterator[SiteReport]:
    """The signal-to-noise ratios of the sites; both models stay as they are.

    A layer whose columns were multiplied before quantisation (smoothing) holds the factors in
    `column_scale`, so that its weight is compared with the float weight in the same coordinates.
    """
    sites = list(sites)
    outputs = _output_snr(deepcopy(quantised), deepcopy(floating), sites, images)
    for site in sites:
        weight = _weight_snr(quantised.net.get_submodule(site), floating.net.get_submodule(site))
        yield SiteReport(site, weight_snr_db=weight, output_snr_db=outputs.get(site))


def changed_layers(quantised: Model, floating: Model) -> list[str]:
    """The float network's linear and convolutional layers that were replaced or have another weight.

    Where a whole block was replaced, the block stands for its layers.
    """
    modules, found = dict(quantised.net.named_modules()), list[str]()
    for name, layer in floating.net.named_modules():
        if not isinstance(layer, nn.Linear | _ConvNd):
            continue
        while name not in modules:
            name = name.rpartition(".")[0]
        new = modules[name]
        if type(new) is not type(layer) or not torch.equal(new.get_parameter("weight"), layer.weight):
            found.append(name)
    return list(dict.fromkeys(found))


@torch.no_grad()
def _output_snr(quantised: Model, floating: Model, sites: list[str], images: Tensor) -> dict[str, float]:
    """dB by site, for sites that return a tensor; hooks are left on the models."""
    exact, noisy = _watch_outputs(floating, sites), _watch_outputs(quantised, sites)
    signal, noise = dict.fromkeys(sites, 0.0), dict.fromkeys(sites, 0.0)
    for batch in images.split(BATCH_SIZE):
        floating(batch)
        quantised(batch)
        for site in exact.keys() & noisy.keys():
            signal[site] += float(exact[site].square().sum())
            noise[site] += float((exact[site] - noisy[site]).square().sum())
    return {site: _decibel(signal[site], noise[site]) for site in exact.keys() & noisy.keys()}


def _watch_outputs(model: Model, sites: list[str]) -> dict[str, Tensor]:
    """The latest output of every site, filled in by passes of the model."""
    seen: dict[str, Tensor] = {}

    def keep(site: str, _: nn.Module, __: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            seen[site] = output.clone()  # a residual sum may reuse its memory

    for site in sites:
        model.net.get_submodule(site).register_forward_hook(partial(keep, site))
    return seen


def _weight_snr(layer: nn.Module, floating: nn.Module) -> float | None:
    """dB of the weight that the quantised layer computes with; None if it has none of that shape."""
    exact, weight = getattr(floating, "weight", None), getattr(layer, "weight", None)
    if not isinstance(exact, Tensor) or not isinstance(weight, Tensor) or weight.shape != exact.shape:
        return None
    column_scale = getattr(layer, "column_scale", None)
    exact = exact.detach() if column_scale is None else exact.detach() * column_scale
    return _decibel(float(exact.square().sum()), float((exact - weight).square().sum()))


def _decibel(signal: float, noise: float) -> float:
    return inf if noise == 0 else float(10 * torch.log10(torch.tensor(signal / noise)))
