"""The graphs of timm's residual blocks, on feature maps [batch, height, width, channels]."""

from __future__ import annotations

from typing import Any

import numpy as np
from timm.models.resnet import BasicBlock, Bottleneck
from torch import nn

from tta_bench_quantizers._engines.onnx_graphs.builder import GraphBuilder

STAGES = ("layer1", "layer2", "layer3", "layer4")


def unsupported_part(net: Any) -> str | None:
    """The first block that has no graph here; None if all have."""
    if not all(hasattr(net, name) for name in STAGES):
        return "the blocks"
    stages = {name: getattr(net, name) for name in STAGES}
    blocks = {f"{name}.{index}": block for name, stage in stages.items() for index, block in enumerate(stage)}
    return next((f"block {name}" for name, block in blocks.items() if not _is_plain(block)), None)


def _is_plain(block: Any) -> bool:
    """Whether a block is made of convolutions, BatchNorm and ReLU only, on a branch and on its shortcut."""
    if type(block) not in (BasicBlock, Bottleneck) or block.se is not None:
        return False
    shortcut = [] if block.downsample is None else list(block.downsample)
    if [type(part) for part in shortcut] not in ([], [nn.Conv2d, nn.BatchNorm2d]):
        return False
    layers = [m for m in block.modules() if isinstance(m, nn.Conv2d)]
    return (
        all(layer.groups == 1 and layer.dilation == (1, 1) for layer in layers)
        and all(type(_norm(block, i)) is nn.BatchNorm2d for i in range(1, _depth(block) + 1))
        and all(isinstance(getattr(block, f"act{i}"), nn.ReLU) for i in range(1, _depth(block) + 1))
        and isinstance(block.aa, nn.Identity)
    )


def _depth(block: Any) -> int:
    """Convolutions on the branch."""
    return 3 if hasattr(block, "conv3") else 2


def _norm(block: Any, number: int) -> Any:
    return getattr(block, f"bn{number}")


def block_graph(block: Any, site: str) -> bytes:
    """One residual block; parameters and stored statistics of its norms are inputs."""
    graph = GraphBuilder(site)
    entering = graph.input("input", ["batch", "height", "width", block.conv1.codes.shape[1]])
    x, depth = entering, _depth(block)
    for number in range(1, depth + 1):
        x = graph.convolution(x, getattr(block, f"conv{number}"), f"{site}.conv{number}")
        x = graph.batch_norm(x, _norm(block, number), f"bn{number}")
        if number < depth:
            x = graph.op("Relu", x)
    if block.downsample is not None:
        shortcut = graph.convolution(entering, block.downsample[0], f"{site}.downsample.0")
        entering = graph.batch_norm(shortcut, block.downsample[1], "downsample.1")
    total = graph.op("Relu", graph.op("Add", x, entering))
    width = _norm(block, depth).num_features
    return graph.finish(total, ["batch", "out_height", "out_width", width])


def stem_graph(model: Any) -> bytes:
    """Images in [0, 1] to the first convolution's output, in float as in the engine."""
    layer, size = model.net.conv1, model.input_size
    quantiser = model.input_quantizer
    graph = GraphBuilder("stem")
    x = graph.input("input", ["batch", 3, size, size])
    centred = graph.op("Sub", x, graph.constant(model.mean))
    grid = graph.constant(np.float32(quantiser.scale)), graph.constant(np.uint8(-quantiser.bounds()[0]))
    codes = graph.op("QuantizeLinear", graph.op("Div", centred, graph.constant(model.std)), *grid)
    stored = graph.constant(layer.codes, "conv1.codes"), graph.constant(layer.scale, "conv1.scale")
    weight = graph.op(
        "DequantizeLinear", *stored, graph.constant(np.zeros(len(layer.codes), np.int8)), axis=0
    )
    (down, right), (top, left), _, _ = layer.geometry
    inputs = [graph.op("DequantizeLinear", codes, *grid), weight]
    if layer.bias is not None:
        inputs.append(graph.constant(layer.bias))
    out = graph.op("Conv", *inputs, name="conv1", strides=[down, right], pads=[top, left, top, left])
    last = graph.op("Transpose", out, perm=[0, 2, 3, 1])
    return graph.finish(last, ["batch", "height", "width", len(layer.codes)])


def entry_graph(model: Any) -> bytes:
    """From the first convolution's output to the first block: norm, ReLU and pooling."""
    net, width = model.net, model.net.bn1.num_features
    graph = GraphBuilder("entry")
    x = graph.batch_norm(graph.input("input", ["batch", "height", "width", width]), net.bn1, "bn1")
    x = graph.op("Relu", x)
    if isinstance(net.maxpool, nn.MaxPool2d):
        pool: Any = net.maxpool
        sizes = {
            "kernel_shape": [pool.kernel_size] * 2,
            "strides": [pool.stride] * 2,
            "pads": [pool.padding] * 4,
        }
        pooled = graph.op("MaxPool", graph.op("Transpose", x, perm=[0, 3, 1, 2]), **sizes)
        x = graph.op("Transpose", pooled, perm=[0, 2, 3, 1])
    return graph.finish(x, ["batch", "out_height", "out_width", width])
