"""Write into docs/quantizers.md what every scheme leaves in float, by quantising small networks.

python tools/float_sites.py
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from generated import replaced
from generated import table as markdown_table
from torch import Tensor, nn

from tta_bench.api import Model, ModelSource, Quantizer
from tta_bench.models.micro import ResNetMicro, VimMicro, VitMicro
from tta_bench_quantizers._calibration.observers import observing
from tta_bench_quantizers._core.activations import ActivationQuantizer
from tta_bench_quantizers._core.attention import DecomposedAttention, is_attention
from tta_bench_quantizers._core.layers import QuantLayer, QuantMatmul
from tta_bench_quantizers.adalog.quantizer import AdaLog
from tta_bench_quantizers.mqbench.quantizer import MqBench
from tta_bench_quantizers.ptq4vit.quantizer import Ptq4Vit
from tta_bench_quantizers.ptq4vm.quantizer import Ptq4Vm
from tta_bench_quantizers.uniform import UniformQuantizer

PAGE = Path(__file__).parents[1] / "docs" / "quantizers.md"
HEADS = ("scheme", "network", "parameters in float", "layer inputs in float", "products in float")
NETWORKS: dict[str, Callable[[], ModelSource]] = {
    "ViT": VitMicro,
    "ResNet": ResNetMicro,
    "Vision Mamba": VimMicro,
}
# The searches do not change which tensors are quantised, so they are as short as possible.
SCHEMES: dict[str, Quantizer] = {
    "uniform": UniformQuantizer(scale="minmax"),
    "ptq4vit": Ptq4Vit(candidates=2, rounds=1, rows=2),
    "adalog": AdaLog(rounds=1, rows=2),
    "mqbench": MqBench(),
    "ptq4vm": Ptq4Vm(),
}
IMAGES = 4
NUMBER = r"(?<=\.)\d+(?=\.)|(?<=^layer)\d"  # the number of a block or a stage


def page() -> str:
    """The page, with its table as the schemes are now."""
    return replaced(PAGE.read_text("utf-8"), "sites left in float", table())


def table() -> str:
    """The Markdown table of all schemes on all networks that they support."""
    rows = []
    for scheme, quantizer in SCHEMES.items():
        for network, source in NETWORKS.items():
            model = source().build()
            if quantizer.unsupported(model) is None:
                rows.append((f"`{scheme}`", network, *left_in_float(quantizer, model)))
    return markdown_table(HEADS, rows)


def left_in_float(quantizer: Quantizer, model: Model) -> tuple[str, str, str]:
    """Parameters, layer inputs and products of a network that a scheme does not quantise."""
    images = torch.rand(IMAGES, 3, model.input_size, model.input_size)
    quantised = quantizer.quantize(model, images)
    found = (_parameters(quantised.net), _inputs(quantised, images[:1]), _products(quantised.net))
    return tuple(_listed(names) for names in found)  # type: ignore[return-value]


def _parameters(net: nn.Module) -> Iterator[str]:
    """Parameters outside quantised layers, and the biases of these."""
    inside = {id(m) for layer in _layers(net).values() for m in layer.modules()}
    for name, module in net.named_modules():
        if isinstance(module, QuantLayer) and module.bias is not None:
            yield "biases of quantised layers"
        own = [] if id(module) in inside else [own for own, _ in module.named_parameters(recurse=False)]
        if {"weight"} <= set(own) <= {"weight", "bias"}:
            yield name
        else:
            yield from (f"{name}.{parameter}".lstrip(".") for parameter in own)


@torch.no_grad()
def _inputs(model: Model, images: Tensor) -> list[str]:
    """Quantised layers that read a tensor which no activation quantiser has made."""
    made: list[Tensor] = []
    read: dict[str, Tensor] = {}
    for module in model.modules():
        if isinstance(module, ActivationQuantizer):
            module.register_forward_hook(lambda _, __, out: made.append(out.clone()))
    layers = {n: m for n, m in _layers(model.net).items() if not isinstance(m.input, ActivationQuantizer)}
    with observing(model.net, layers, lambda name, inputs, _: read.update({name: inputs[0].clone()})):
        model(images)
    return [name for name, x in read.items() if not any(torch.equal(x, each) for each in made)]


def _products(net: nn.Module) -> Iterator[str]:
    """Products of two activations with an operand that is not quantised."""
    for name, module in net.named_modules():
        if isinstance(module, QuantMatmul):
            if not all(isinstance(m, ActivationQuantizer) for m in (module.a, module.b)):
                yield name
        elif is_attention(module) and not isinstance(module, DecomposedAttention):
            yield f"{name}: q·kᵀ and attention·v"
        elif hasattr(module, "A_log"):
            yield f"{name}: the selective scan"


def _layers(net: nn.Module) -> dict[str, QuantLayer]:
    return {name: m for name, m in net.named_modules() if isinstance(m, QuantLayer)}


def _listed(names: Iterator[str] | list[str]) -> str:
    """Names, with those that differ only in a number written once."""
    general = dict.fromkeys(re.sub(NUMBER, "*", name) for name in names)
    shown = [name if " of " in name else re.sub(r"^[^:]+", r"`\g<0>`", name) for name in general]
    return ", ".join(shown) or "none"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    print(PAGE)
