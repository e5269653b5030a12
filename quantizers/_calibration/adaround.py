"""AdaRound (Nagel et al., 2020): learn for each weight whether to round it down or up.

    W̃ = s · (clip(⌊W/s⌋ + h(V) + z, 0, 2^b − 1) − z),    h(V) = clip(1.2 · sigmoid(V) − 0.1, 0, 1)
    loss = distance(unit(x; W̃), target) + λ · Σ (1 − |2h − 1|^β)

β falls linearly: at first h minimises the distance, later it is driven to 0 or 1. A unit is any callable of
inputs and weights: one layer with its norm, or a whole block with several weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from tta_bench_quantizers._core.fake_quantization import dequantize, per_row

Unit: TypeAlias = Callable[[Tensor, Mapping[str, Tensor]], Tensor]  # inputs, weights by name
Distance: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # output, target

PUBLISHED_STEPS = 20_000
GAMMA, ZETA = -0.1, 1.1  # the sigmoid is stretched to this range, so that 0 and 1 are reached


@dataclass(frozen=True)
class Schedule:
    """Steps and learning rate; `penalty` is λ, `warmup` the share of steps without it."""

    steps: int = PUBLISHED_STEPS
    lr: float = 1e-3
    batch_size: int = 32
    penalty: float = 0.01
    warmup: float = 0.2
    first_beta: float = 20.0
    last_beta: float = 2.0

    def beta(self, step: int) -> float | None:
        """The exponent at a step, or None during warm-up."""
        start = self.warmup * self.steps
        if step < start:
            return None
        return self.first_beta + (self.last_beta - self.first_beta) * (step - start) / (self.steps - start)


def short_schedule(steps: int) -> Schedule:
    """The published schedule in fewer steps, with a learning rate up to ten times as large."""
    return Schedule(steps, lr=1e-3 * min(10.0, max(1.0, PUBLISHED_STEPS / max(steps, 1))))


class SoftRounding:
    """One weight on its affine grid; each element lies between its two nearest codes."""

    def __init__(self, weight: Tensor, scale: Tensor, zero: Tensor, bits: int) -> None:
        self.top = 2**bits - 1
        step = per_row(scale, weight)
        position = weight.detach() / step
        below = position.floor()
        self.base = below + per_row(zero, weight)
        # base is an integer: an element is clipped for every h in [0, 1], or for none.
        free = (self.base >= 0) & (self.base < self.top)
        self.offset = dequantize(self.base.clamp(0, self.top), scale, zero)
        self.slope = step * free
        share = (position - below - GAMMA) / (ZETA - GAMMA)
        self.v = torch.logit(share).requires_grad_()  # h(V) = frac(W/s): the float weight itself

    def share(self) -> Tensor:
        """h(V): the share of the step up."""
        return (torch.sigmoid(self.v) * (ZETA - GAMMA) + GAMMA).clamp(0, 1)

    def weight(self, share: Tensor) -> Tensor:
        """W̃ at h = `share`."""
        return torch.addcmul(self.offset, self.slope, share)

    def codes(self) -> Tensor:
        """Unsigned codes after rounding: up where V ≥ 0."""
        up = (self.v.detach() >= 0).float()
        return (self.base + up).clamp_(0, self.top).to(torch.uint8).contiguous()


def rounding_penalty(share: Tensor, beta: float) -> Tensor:
    """Σ (1 − |2h − 1|^β): zero when every h is 0 or 1."""
    # exp2 and log2 of the square are six times as fast as pow on a CPU; 1e-12 keeps gradients finite.
    square = (2 * share - 1).square() + 1e-12
    return share.numel() - torch.exp2(torch.log2(square) * (beta / 2)).sum()


def squared_error(output: Tensor, target: Tensor) -> Tensor:
    """Squared error, summed over dimension 1 (channels) and averaged over the others."""
    return (output - target).square().sum(1).mean()


def learn_rounding(
    roundings: Mapping[str, SoftRounding],
    unit: Unit,
    inputs: Tensor,
    targets: Tensor,
    schedule: Schedule,
    distance: Distance = squared_error,
    on_step: Callable[[], None] = lambda: None,
) -> dict[str, Tensor]:
    """Codes by name. `on_step` runs after each backward pass, for other parameters that the unit learns."""
    optimizer = torch.optim.Adam([r.v for r in roundings.values()], lr=schedule.lr, fused=True)
    rng = torch.Generator().manual_seed(0)
    with torch.enable_grad():
        for step in range(schedule.steps):
            x, target = _minibatch(inputs, targets, schedule.batch_size, rng)
            optimizer.zero_grad()
            loss = _loss(roundings, unit, x, target, schedule.beta(step), schedule.penalty, distance)
            loss.backward()
            optimizer.step()
            on_step()
    return {name: rounding.codes() for name, rounding in roundings.items()}


def _loss(
    roundings: Mapping[str, SoftRounding],
    unit: Unit,
    x: Tensor,
    target: Tensor,
    beta: float | None,
    penalty: float,
    distance: Distance,
) -> Tensor:
    shares = {name: rounding.share() for name, rounding in roundings.items()}
    weights = {name: roundings[name].weight(share) for name, share in shares.items()}
    loss = distance(unit(x, weights), target)
    if beta is None:
        return loss
    return loss + penalty * torch.stack([rounding_penalty(h, beta) for h in shares.values()]).sum()


def _minibatch(inputs: Tensor, targets: Tensor, size: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random images with their targets; all of them, without a copy, if they fit in one batch."""
    if size >= len(inputs):
        return inputs, targets
    picks = torch.randperm(len(inputs), generator=rng)[:size]
    return inputs[picks], targets[picks]
