"""The graphs of timm's residual blocks, on feature maps [batch, height, width, channels]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from timm.models.resnet import BasicBlock, Bottleneck
from torch import nn

from tta_bench_quantizers._core.layers import QuantConv2d
from tta_bench_quantizers._engines.integer_layers import NO_GRIDS, InputGrid, grid_of
from tta_bench_quantizers._engines.onnx_graphs.builder import GraphBuilder

CONVOLUTION = nn.Conv2d | QuantConv2d
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
    if shortcut and (len(shortcut) != 2 or not isinstance(shortcut[0], CONVOLUTION)):
        return False
    layers = [m for m in block.modules() if isinstance(m, CONVOLUTION)]
    norms = [_norm(block, i) for i in range(1, _depth(block) + 1)] + shortcut[1:]
    return (
        all(map(_is_simple, layers))
        and all(type(norm) is nn.BatchNorm2d and norm.affine for norm in norms)
        and all(isinstance(getattr(block, f"act{i}"), nn.ReLU) for i in range(1, _depth(block) + 1))
        and isinstance(block.aa, nn.Identity)
    )


def _is_simple(layer: Any) -> bool:
    """Whether a convolution, quantised or not, has neither groups nor dilation."""
    if not isinstance(layer, QuantConv2d):
        return layer.groups == 1 and layer.dilation == (1, 1)
    return layer.geometry[2:] == ((1, 1), 1)


def unsupported_stem(net: Any) -> str | None:
    """The first part before or behind the blocks that an export has no graph of; None if it has all."""
    conv, pool = net.conv1, net.maxpool
    if not isinstance(conv, CONVOLUTION):
        return "the stem of several layers"
    if not _is_simple(conv):
        return "the first convolution"
    if type(net.bn1) is not nn.BatchNorm2d or not net.bn1.affine or not isinstance(net.act1, nn.ReLU):
        return "the norm or the activation function behind the first convolution"
    plain = type(pool) is nn.MaxPool2d and not pool.ceil_mode and pool.dilation == 1
    if not plain and not isinstance(pool, nn.Identity):
        return "the pooling behind the first convolution"
    return None if getattr(net.global_pool, "pool_type", "") == "avg" else "the pooling of features"


def _depth(block: Any) -> int:
    """Convolutions on the branch."""
    return 3 if hasattr(block, "conv3") else 2


def _norm(block: Any, number: int) -> Any:
    return getattr(block, f"bn{number}")


def block_graph(block: Any, site: str, grids: Mapping[str, InputGrid] = NO_GRIDS) -> bytes:
    """One residual block; parameters and stored statistics of its norms are inputs.

    `grids` has the grid of the input of layers, by name, that do not quantise their input themselves.
    """
    graph = GraphBuilder(site)
    entering = graph.input("input", ["batch", "height", "width", block.conv1.codes.shape[1]])
    x, depth = entering, _depth(block)
    for number in range(1, depth + 1):
        name = f"{site}.conv{number}"
        x = graph.convolution(x, getattr(block, f"conv{number}"), name, grids.get(name))
        x = graph.batch_norm(x, _norm(block, number), f"bn{number}")
        if number < depth:
            x = graph.op("Relu", x)
    if block.downsample is not None:
        name = f"{site}.downsample.0"
        shortcut = graph.convolution(entering, block.downsample[0], name, grids.get(name))
        entering = graph.batch_norm(shortcut, block.downsample[1], "downsample.1")
    total = graph.op("Relu", graph.op("Add", x, entering))
    if (grid := _output_grid(block)) is not None:
        total = graph.on_grid(total, grid)
    width = _norm(block, depth).num_features
    return graph.finish(total, ["batch", "out_height", "out_width", width])


def _output_grid(block: Any) -> InputGrid | None:
    """The grid on which a scheme quantises the block's output for all its readers; None if it does not."""
    last = getattr(block, f"act{_depth(block)}")
    return grid_of(last[-1]) if isinstance(last, nn.Sequential) else None


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
