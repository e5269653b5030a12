"""Networks at the paper's scale with random weights, quantised in seconds.

Run time depends on shapes, not on numbers. So one block is calibrated roughly, and its calibration is copied
to all blocks.
"""

from __future__ import annotations

import re
from copy import deepcopy
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from tta_bench.api import Calibration, Model, ModelSource, Quantizer
from tta_bench.models.imagenet import ResNet50, VimS, VitB
from tta_bench.models.micro import ResNetMicro, VimMicro, VitMicro
from tta_bench.models.vit import VitModel
from tta_bench_quantizers.adalog.quantizer import AdaLog
from tta_bench_quantizers.mqbench.quantizer import MqBench
from tta_bench_quantizers.ptq4vit.quantizer import Ptq4Vit
from tta_bench_quantizers.ptq4vm.quantizer import Ptq4Vm
from tta_bench_quantizers.uniform import UniformQuantizer

HALF = (0.5, 0.5, 0.5)
CALIBRATION_IMAGES = 2
MICRO: dict[str, type[ModelSource]] = {
    "vit-micro": VitMicro,
    "resnet-micro": ResNetMicro,
    "vim-micro": VimMicro,
}
LARGE: dict[str, Any] = {"vit-b": VitB, "resnet-50": ResNet50, "vim-s": VimS}
QUANTIZERS: dict[str, Quantizer] = {
    "PTQ4ViT W8A8": Ptq4Vit(bits="W8A8", grad_mode="mse", candidates=2, rounds=1, rows=16),
    "AdaLog W4A4": AdaLog(bits="W4A4", rounds=1, rows=16),
    "MQBench W8A8": MqBench(bits="W8A8"),
    "PTQ4VM W8A8": Ptq4Vm(bits="W8A8"),
    "uniform W8A8": UniformQuantizer(bits="W8A8", scale="minmax"),
}


def floating(name: str) -> Model:
    """A network before quantisation."""
    torch.manual_seed(0)
    if name == "deit-tiny":
        return _deit_tiny()
    return (MICRO[name]() if name in MICRO else LARGE[name](weights="random")).build()


def quantised(name: str, quantizer: str) -> Model:
    """A copy of the network, quantised by one of `QUANTIZERS`."""
    model = floating(name)
    return QUANTIZERS[quantizer].install(model, rough_calibration(name, quantizer))


def images(model: Model, count: int) -> Tensor:
    """Random images."""
    rng = torch.Generator().manual_seed(1)
    return torch.rand(count, 3, model.input_size, model.input_size, generator=rng)


def _deit_tiny() -> Model:
    from timm.models import VisionTransformer

    net = VisionTransformer(embed_dim=192, depth=12, num_heads=3)
    facts: dict[str, Any] = dict(name="deit-tiny", num_classes=1000, input_size=224, mean=HALF, std=HALF)
    return VitModel(net, **facts).eval().requires_grad_(False)


@cache
def rough_calibration(name: str, quantizer: str) -> Calibration:
    """The calibration of the first block for all blocks; unequal blocks are all calibrated."""
    model = floating(name)
    blocks, count = _blocks(model), len(model.blocks)
    if blocks is not None:
        setattr(model.net, blocks, getattr(model.net, blocks)[:1])
    found = QUANTIZERS[quantizer].calibrate(
        deepcopy(model), images(model, CALIBRATION_IMAGES), lambda *_: None
    )
    if blocks is None:
        return found
    first = re.compile(rf"^{blocks}\.0\.")
    return {
        first.sub(f"{blocks}.{index}.", key): tensor
        for key, tensor in found.items()
        for index in range(count if first.match(key) else 1)
    }


def _blocks(model: Model) -> str | None:
    """The attribute that holds the blocks of a network, if all blocks are alike."""
    lists = (nn.Sequential, nn.ModuleList)
    return next(
        (name for name, m in model.net.named_children() if isinstance(m, lists) and m is model.blocks), None
    )
