"""JLSS, PTQ4VM's joint learning of smoothing and step sizes, block by block.

Plain autograd with straight-through rounding. The release's fused backward gives x_proj and dt_proj no
gradient and differentiates with unquantised weights; here all six layers learn, from what is computed.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, linear

from tta_bench.api import Bits
from tta_bench_quantizers._core.fake_quantization import affine_bounds
from tta_bench_quantizers._core.sites import replace_module
from tta_bench_quantizers._core.straight_through import quantize_straight_through
from tta_bench_quantizers.ptq4vm.fit import LinearFit, top_code

SIGMA_LR = 1e-2
SCALE_LR = 5e-4
WEIGHT_DECAY = 1e-5
MAX_GRAD_NORM = 2.0
FLOOR = 1e-5  # σ and scales stay positive


class LearnableLinear(nn.Module):
    """A linear layer quantised anew at each call; σ and both scales are parameters."""

    def __init__(self, layer: nn.Linear, fit: LinearFit, bits: Bits) -> None:
        super().__init__()
        self.layer, self.top = layer, top_code(bits.weight)
        self.sigma = nn.Parameter(fit.sigma.clone())
        self.w_scale = nn.Parameter(fit.w_scale.clone())
        self.a_scale = nn.Parameter(fit.a_scale.clone())
        self.a_zero = fit.a_zero
        self.low, self.high = affine_bounds(fit.a_zero.view(-1, 1, 1), bits.activation)

    def forward(self, x: Tensor) -> Tensor:
        scale = self.a_scale.view(-1, 1, 1)
        x = quantize_straight_through(x / self.sigma, scale, self.low, self.high)
        smooth = self.layer.weight * self.sigma
        weight = quantize_straight_through(smooth, self.w_scale[:, None], -self.top, self.top)
        return linear(x, weight, self.layer.bias)

    def fit(self) -> LinearFit:
        """The scales as they are now."""
        now = (t.detach().clone() for t in (self.sigma, self.w_scale, self.a_scale))
        return LinearFit(*now, a_zero=self.a_zero)


def learn_scales(
    mixer: nn.Module,
    fits: dict[str, LinearFit],
    bits: Bits,
    tokens: Tensor,
    target: Tensor,
    steps: int,
) -> tuple[dict[str, LinearFit], list[float]]:
    """Scales after full-batch AdamW, by layer of the mixer, and the loss before each step.

    `tokens` are the mixer's input after quantised blocks, `target` is its float output. The scales with the
    least loss are returned: a step of fixed size may be too long for a small network.
    """
    mixer = deepcopy(mixer).requires_grad_(False)
    layers = {}
    for name, fit in fits.items():
        layers[name] = LearnableLinear(mixer.get_submodule(name), fit, bits)  # type: ignore[arg-type]
        replace_module(mixer, name, layers[name])
    optimizer = _optimizer(list(layers.values()))
    best, losses = fits, []
    for step in range(steps + 1):
        with torch.enable_grad():
            loss = cosine_loss(mixer(tokens), target)
        losses.append(loss.item())
        if losses[-1] == min(losses):
            best = {name: layer.fit() for name, layer in layers.items()}
        if step < steps:
            _step_(optimizer, loss)
    return best, losses


def cosine_loss(output: Tensor, target: Tensor) -> Tensor:
    """Mean over tokens of 1 − cos over channels."""
    return (1 - cosine_similarity(output, target, dim=-1)).mean()


def _optimizer(layers: list[LearnableLinear]) -> torch.optim.Optimizer:
    groups = [
        {"params": [layer.sigma for layer in layers], "lr": SIGMA_LR},
        {"params": [t for layer in layers for t in (layer.w_scale, layer.a_scale)], "lr": SCALE_LR},
    ]
    return torch.optim.AdamW(groups, weight_decay=WEIGHT_DECAY)


def _step_(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(parameters, MAX_GRAD_NORM)
    optimizer.step()
    for parameter in parameters:
        parameter.data.clamp_min_(FLOOR)
