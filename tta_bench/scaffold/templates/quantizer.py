"""A post-training quantizer. Rounding to nearest is a starting point: put your own scheme in its place."""

from dataclasses import dataclass
from math import ceil
from typing import Annotated

import torch
from torch import Tensor, nn

from tta_bench.api import BitRange, Bits, Calibration, Model, Progress, Quantizer

FLOAT_BYTES = 4


@dataclass
class PluginClass(Quantizer):
    """Weights rounded to the nearest step, one symmetric scale per output channel; activations stay float."""

    # Fields are hyper-parameters: keys of the YAML, and part of a result's identity. Their types say what
    # they may hold: here 2 to 8 bits for weights, and activations in float.
    bits: Annotated[str, BitRange((2, 8), (32, 32))] = "W8A32"

    calibration_images = 0  # clean images that `calibrate` needs; rounding needs none
    summary = "weights rounded to the nearest step, per output channel; activations stay float"

    def calibrate(self, model: Model, images: Tensor, progress: Progress) -> Calibration:
        largest_code = 2 ** (Bits.parse(self.bits).weight - 1) - 1
        found: Calibration = {}
        sites = layers(model)
        for done, (site, layer) in enumerate(sites.items(), 1):
            weight = layer.weight.detach()
            scale = weight.abs().flatten(1).amax(1).clamp_min(1e-12) / largest_code
            found[f"{site}.codes"] = (weight / per_channel(scale, weight)).round().to(torch.int8).contiguous()
            found[f"{site}.scale"] = scale
            progress(done, len(sites))
        return found

    def apply(self, model: Model, calibration: Calibration) -> None:
        for site, layer in layers(model).items():
            codes, scale = calibration[f"{site}.codes"], calibration[f"{site}.scale"]
            # A new tensor in the old one's memory layout: methods may still hold the float classifier.
            weight = torch.empty_like(layer.weight).copy_(codes * per_channel(scale, codes))
            layer.weight = nn.Parameter(weight, requires_grad=False)

    def packed_bytes(self, model: Model) -> int:
        weights = [layer.weight for layer in layers(model).values()]
        tensors = [*model.net.parameters(), *model.net.buffers()]
        floats = sum(t.numel() for t in tensors if t.is_floating_point())
        floats += sum(len(w) - w.numel() for w in weights)  # a scale for each channel in place of its weights
        codes = sum(ceil(w.numel() * Bits.parse(self.bits).weight / 8) for w in weights)
        return codes + floats * FLOAT_BYTES


def layers(model: Model) -> dict[str, nn.Linear | nn.Conv2d]:
    """All linear and convolutional layers, by their names in the network."""
    return {n: m for n, m in model.net.named_modules() if isinstance(m, (nn.Linear, nn.Conv2d))}


def per_channel(scale: Tensor, weight: Tensor) -> Tensor:
    """Scales as a column that broadcasts over a weight."""
    return scale.view(-1, *[1] * (weight.dim() - 1))
