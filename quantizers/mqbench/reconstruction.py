"""AdaRound on a ResNet, layer by layer: inputs from the quantised network, targets from the float one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call

from tta_bench.api import Calibration, Model, Once
from tta_bench_quantizers._calibration.adaround import Schedule, SoftRounding, learn_rounding
from tta_bench_quantizers._calibration.observers import BATCH, observing
from tta_bench_quantizers._core.layers import QuantLayer
from tta_bench_quantizers._core.sites import named_fields
from tta_bench_quantizers.mqbench.sites import layer_units


def reconstruct_(
    quantised: Model,
    floating: Model,
    images: Tensor,
    schedule: Schedule,
    on_unit: Callable[[], None],
    once: Once,
) -> Calibration:
    """Learn the rounding of every layer of `quantised`, in place; the new codes by site."""
    calibration: Calibration = {}
    for names in layer_units(floating):
        site = names[0]
        learn = partial(learn_unit, names, quantised, floating, images, schedule)
        codes = once(f"reconstruction of {site}", learn)["codes"]
        layer = quantised.net.get_submodule(site)
        assert isinstance(layer, QuantLayer)
        layer.set_codes(codes)
        calibration |= named_fields(site, {"codes": codes})
        on_unit()
    return calibration


def learn_unit(
    names: tuple[str, ...], quantised: Model, floating: Model, images: Tensor, schedule: Schedule
) -> dict[str, Tensor]:
    """The codes of a unit's first layer; earlier layers of `quantised` already have their codes."""
    site = names[0]
    inputs = activations_at(quantised, site, images, lambda inputs, _: inputs[0])
    targets = activations_at(floating, names[-1], images, lambda _, output: output)
    weight = floating.net.get_submodule(site).get_parameter("weight")
    layer, *rest = (quantised.net.get_submodule(name) for name in names)
    assert isinstance(layer, QuantLayer)
    return {"codes": learn_layer(layer, rest, weight, inputs, targets, schedule)}


def learn_layer(
    layer: QuantLayer,
    rest: list[nn.Module],
    weight: Tensor,
    inputs: Tensor,
    targets: Tensor,
    schedule: Schedule,
) -> Tensor:
    """Codes of one layer that bring the unit's output closest to `targets`."""

    def unit(x: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        x = functional_call(layer, dict(weights), (x,))
        for module in rest:
            x = module(x)
        return x

    assert layer.zero is not None
    rounding = SoftRounding(weight, layer.scale, layer.zero, layer.bits)
    return learn_rounding({"weight": rounding}, unit, inputs, targets, schedule)["weight"]


@torch.no_grad()
def activations_at(
    model: Model, name: str, images: Tensor, pick: Callable[[tuple[Tensor, ...], Tensor], Tensor]
) -> Tensor:
    """A module's inputs or output over all images, as `pick` selects."""
    parts: list[Tensor] = []
    # Cloned at once: the residual sum is computed in the branch's own memory.
    with observing(model.net, [name], lambda _, inputs, output: parts.append(pick(inputs, output).clone())):
        for batch in images.split(BATCH):
            model(batch)
    return torch.cat(parts)
