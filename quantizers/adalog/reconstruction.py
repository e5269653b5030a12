"""AdaLog's optional reconstruction: rounding and activation scales learned block by block.

Units are the patch embedding, every block and the head. Inputs and targets come from the float
network; rounding is AdaRound's, and scales follow the straight-through gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import kl_div, log_softmax

from tta_bench.api import Calibration, Model, Once
from tta_bench_quantizers._calibration.adaround import (
    Distance,
    Schedule,
    SoftRounding,
    learn_rounding,
    squared_error,
)
from tta_bench_quantizers._calibration.observers import BATCH
from tta_bench_quantizers._core.activations import UniformActivation
from tta_bench_quantizers._core.layers import QuantLayer
from tta_bench_quantizers._core.sites import head_site, replace_module
from tta_bench_quantizers._core.straight_through import quantize_straight_through
from tta_bench_quantizers._core.vit_sites import vit_sites
from tta_bench_quantizers.adalog.logarithmic import AdaLogActivation, adalog
from tta_bench_quantizers.adalog.search import ACTIVATION_FLOOR

SCALE_LR = 4e-5
FIELDS = {"input": "a_scale", "a": "a_scale", "b": "b_scale"}  # by position in a layer or product


@dataclass(frozen=True)
class Unit:
    """A module to reconstruct, with its inputs and outputs in the float network."""

    name: str
    inputs: Tensor
    targets: Tensor
    distance: Distance


class LearnableUniform(nn.Module):
    """A uniform quantiser with a learnable scale and fixed zero points."""

    def __init__(self, fixed: UniformActivation) -> None:
        super().__init__()
        self.scale, self.bounds = nn.Parameter(fixed.scale.clone()), fixed.bounds()

    def forward(self, x: Tensor) -> Tensor:
        return quantize_straight_through(x, self.scale, *self.bounds)


class LearnableLog(nn.Module):
    """An AdaLog quantiser with a learnable scale (1 at first for softmax) and a fixed base."""

    def __init__(self, fixed: AdaLogActivation) -> None:
        super().__init__()
        self.scale = nn.Parameter(fixed.scale.clone())
        self.q, self.bits, self.shift = fixed.q, fixed.bits, fixed.shift

    def forward(self, x: Tensor) -> Tensor:
        share = ((x + self.shift) / self.scale).clamp(0, 1)
        with torch.no_grad():
            error = adalog(share, torch.ones_like(self.scale), self.q, self.bits) - share
        return (share + error) * self.scale


def reconstruct(
    quantised: Model,
    floating: Model,
    images: Tensor,
    schedule: Schedule,
    on_unit: Callable[[], None],
    once: Once,
) -> Calibration:
    """New codes and activation scales by site; `quantised` cannot be used afterwards."""
    calibration = Calibration()
    for unit in units(floating, images):
        learn = partial(learn_unit, unit, quantised.net, floating.net, schedule)
        calibration |= once(f"reconstruction of {unit.name}", learn)
        on_unit()
    return calibration


def unit_count(model: Model) -> int:
    """Patch embedding, blocks, head."""
    return len(model.blocks) + 2


@torch.no_grad()
def units(model: Model, images: Tensor) -> Iterator[Unit]:
    """All units in the order of computation; only the tensors of one are in memory at a time."""
    stem = next(site for site, kind in vit_sites(model).items() if kind == "conv")
    pixels = model.normalise(images)
    yield Unit(stem, pixels, _run(model.net.get_submodule(stem), pixels), _scaled_error)
    names = {id(module): name for name, module in model.net.named_modules()}
    hidden = _run(lambda x: model.enter(model.stem(x)), images)
    for block in model.blocks:
        after = _run(block, hidden)
        yield Unit(names[id(block)], hidden, after, _scaled_error)
        hidden = after
    z = model.pool(hidden)
    yield Unit(head_site(model), z, model.head(z), _divergence)


def _run(module: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return torch.cat([module(part) for part in x.split(BATCH)])


def _scaled_error(output: Tensor, target: Tensor) -> Tensor:
    return squared_error(output, target) / 10


def _divergence(output: Tensor, target: Tensor) -> Tensor:
    """KL divergence from the float network's softmax."""
    return kl_div(log_softmax(output, 1), target.softmax(1), reduction="batchmean")


def learn_unit(unit: Unit, net: nn.Module, floating: nn.Module, schedule: Schedule) -> Calibration:
    """Codes and scales of all sites in one unit; its quantisers in `net` stay learnable."""
    module = net.get_submodule(unit.name)
    layers = {name: m for name, m in module.named_modules() if isinstance(m, QuantLayer)}
    exact = {name: floating.get_submodule(_dotted(unit.name, name)) for name in layers}
    scales = _make_learnable_(net, unit.name)
    roundings = {name: _rounding(layer, exact[name]) for name, layer in layers.items()}

    def forward(x: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        overrides: dict[str, Tensor] = {}
        for name, weight in weights.items():
            overrides[_dotted(name, "weight")] = weight
            inside = layers[name].input
            if isinstance(inside, LearnableLog):  # the bias that subtracts the shift depends on Ŵ
                overrides[_dotted(name, "bias")] = exact[name].bias - inside.shift * weight.sum(1)
        return functional_call(module, overrides, (x,))

    step = _scale_steps(list(scales.values()), schedule.steps)
    codes = learn_rounding(roundings, forward, unit.inputs, unit.targets, schedule, unit.distance, step)
    learned = {f"{_dotted(unit.name, name)}.codes": found for name, found in codes.items()}
    return learned | {key: scale.detach().clone() for key, scale in scales.items()}


def _rounding(layer: QuantLayer, exact: nn.Module) -> SoftRounding:
    """Soft rounding of the float weight, in the coordinates in which it is quantised."""
    weight = exact.get_parameter("weight")
    weight = weight if layer.column_scale is None else weight * layer.column_scale
    assert layer.zero is not None
    return SoftRounding(weight, layer.scale, layer.zero, layer.bits)


def _make_learnable_(net: nn.Module, root: str) -> dict[str, nn.Parameter]:
    """Put learnable quantisers into a unit; their scales by calibration field."""
    scales = {}
    for name, module in list(net.get_submodule(root).named_modules()):
        site, _, place = _dotted(root, name).rpartition(".")
        new: LearnableUniform | LearnableLog
        if isinstance(module, UniformActivation):
            new = LearnableUniform(module)
        elif isinstance(module, AdaLogActivation):
            new = LearnableLog(module)
        else:
            continue
        replace_module(net, f"{site}.{place}", new)
        scales[f"{site}.{FIELDS[place]}"] = new.scale
    return scales


def _scale_steps(scales: list[nn.Parameter], steps: int) -> Callable[[], None]:
    """The update of the scales after each backward pass: Adam with a cosine schedule."""
    if not scales:
        return lambda: None
    optimizer = torch.optim.Adam(scales, SCALE_LR)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    @torch.no_grad()
    def step() -> None:
        optimizer.step()
        decay.step()
        optimizer.zero_grad()
        for scale in scales:
            scale.clamp_min_(ACTIVATION_FLOOR)

    return step


def _dotted(*names: str) -> str:
    return ".".join(name for name in names if name)
