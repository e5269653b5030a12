"""ONNX graphs, written node by node: quantised layers from our own codes and scales, norms with their
parameters as inputs.

A layer is QuantizeLinear, DequantizeLinear of activation and weight, and MatMul, which runtimes fuse to a
product of integers. A convolution gathers its windows as 8-bit codes first, so that it is such a product too:
runtimes multiply integers in a Conv only if its output is quantised again, which would be another scheme.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from tta_bench_quantizers._core.fake_quantization import per_row
from tta_bench_quantizers._core.layers import QuantConv2d, QuantLayer
from tta_bench_quantizers._engines.integer_layers import InputGrid, grid_of

OPSET = 21
IR_VERSION = 10
TO_THE_END = np.iinfo(np.int64).max
HEIGHT, WIDTH, CHANNELS = 1, 2, 3  # axes of a feature map


class GraphBuilder:
    """Collects the nodes of one graph; every method returns the name of its result."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self.inputs: dict[str, Any] = {}

    # Values --------------------------------------------------------------------------------------

    def input(self, name: str, shape: Sequence[int | str], kind: int = TensorProto.FLOAT) -> str:
        """An input of the graph; a text in its shape is a size that varies."""
        self.inputs[name] = helper.make_tensor_value_info(name, kind, shape)
        return name

    def constant(self, values: Any, name: str = "") -> str:
        """A tensor in the file."""
        name = name or f"constant_{len(self.constants)}"
        array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
        self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
        return name

    def integers(self, *values: int) -> str:
        """A constant list of sizes or axes."""
        return self.constant(np.array(values, np.int64))

    def op(self, kind: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """The result of one node."""
        output = f"{name or kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], name or output, **attributes))
        return output

    # Quantised layers ----------------------------------------------------------------------------

    def quantized(self, x: str, layer: QuantLayer, grid: InputGrid | None = None) -> tuple[str, str, str]:
        """The codes of a layer's input, and the scale and the zero point that they have.

        `grid` is that of the input, if the layer does not quantise it itself.
        """
        grid = grid or grid_of(layer.input)
        assert grid is not None, "the input has no codes"
        assert layer.bits == 8, "not a layer of 8-bit codes"
        return self.codes(x, grid)

    def codes(self, x: str, grid: InputGrid) -> tuple[str, str, str]:
        """Codes on a grid, and its scale and zero point."""
        scale, zero = self.constant(np.float32(grid.scale)), self.constant(np.uint8(grid.zero))
        return self.op("QuantizeLinear", x, scale, zero), scale, zero

    def on_grid(self, x: str, grid: InputGrid) -> str:
        """A tensor rounded to a grid, in float."""
        return self.op("DequantizeLinear", *self.codes(x, grid))

    def product(self, codes: str, scale: str, zero: str, layer: QuantLayer, site: str) -> str:
        """codes · weightᵀ + bias over the last axis, for a weight [out, in] or [out, in, height, width]."""
        weight = layer.codes if layer.codes.dim() == 2 else layer.codes.permute(0, 2, 3, 1).flatten(1)
        rows = per_row(layer.scale, weight).flatten()
        stored = self.constant(weight.T, f"{site}.codes"), self.constant(rows, f"{site}.scale")
        zeros = self.constant(
            np.zeros(len(weight), np.int8)
            if layer.zero is None
            else per_row(layer.zero, weight).flatten().to(layer.codes.dtype)
        )
        factor = self.op("DequantizeLinear", *stored, zeros, axis=1)
        product = self.op("MatMul", self.op("DequantizeLinear", codes, scale, zero), factor, name=site)
        return product if layer.bias is None else self.op("Add", product, self.constant(layer.bias))

    def linear(self, x: str, layer: nn.Module, site: str) -> str:
        """A quantised linear layer on a tensor of three or more axes: on two, runtimes would use float."""
        assert isinstance(layer, QuantLayer)
        return self.product(*self.quantized(x, layer), layer, site)

    def convolution(self, x: str, layer: nn.Module, site: str, grid: InputGrid | None = None) -> str:
        """A quantised convolution of a feature map [batch, height, width, channels]."""
        assert isinstance(layer, QuantConv2d)
        codes, scale, zero = self.quantized(x, layer, grid)
        return self.product(self._windows(codes, zero, layer), scale, zero, layer, site)

    def _windows(self, codes: str, zero: str, layer: QuantConv2d) -> str:
        """The window of every output position, along the channels; padding is the code of zero."""
        (down, right), (top, left), _, _ = layer.geometry
        height, width = layer.codes.shape[2:]
        if top or left:
            codes = self.op("Pad", codes, self.integers(0, top, left, 0, 0, top, left, 0), zero)
        if (height, width, down, right) == (1, 1, 1, 1):
            return codes
        parts = []
        for y in range(height):
            for x in range(width):
                ends = [y + 1 - height or TO_THE_END, x + 1 - width or TO_THE_END]
                bounds = self.integers(y, x), self.integers(*ends), self.integers(HEIGHT, WIDTH)
                parts.append(self.op("Slice", codes, *bounds, self.integers(down, right)))
        return self.op("Concat", *parts, axis=CHANNELS) if len(parts) > 1 else parts[0]

    # Norms ---------------------------------------------------------------------------------------

    def layer_norm(self, x: str, norm: nn.LayerNorm, prefix: str = "") -> str:
        """LayerNorm over the last axis; γ and β are inputs."""
        size = norm.normalized_shape[0]
        affine = self.input(f"{prefix}weight", [size]), self.input(f"{prefix}bias", [size])
        return self.op("LayerNormalization", x, *affine, axis=-1, epsilon=norm.eps)

    def batch_norm(self, x: str, norm: nn.BatchNorm2d, name: str) -> str:
        """BatchNorm over the last axis; γ, β and the stored statistics are inputs."""
        size, parts = norm.num_features, ("weight", "bias", "mean", "variance")
        weight, bias, mean, variance = (self.input(f"{name}.{part}", [size]) for part in parts)
        mean, variance = self._statistics(x, mean, variance)
        spread = self.op("Sqrt", self.op("Add", variance, self.constant(np.float32(norm.eps))))
        factor = self.op("Div", weight, spread)
        offset = self.op("Sub", bias, self.op("Mul", mean, factor))
        return self.op("Add", self.op("Mul", x, factor), offset)

    def _statistics(self, x: str, mean: str, variance: str) -> tuple[str, str]:
        """Mean and variance: of the batch if the input `batch_statistics` is true, or as stored."""
        switch, number = "batch_statistics", len(self.nodes)
        if switch not in self.inputs:
            self.input(switch, [], TensorProto.BOOL)
        axes = self.integers(0, HEIGHT, WIDTH)
        of_batch, gap, square, spread = (f"{name}_{number}" for name in ("mean", "gap", "square", "spread"))
        compute = [
            helper.make_node("ReduceMean", [x, axes], [of_batch], keepdims=0),
            helper.make_node("Sub", [x, of_batch], [gap]),
            helper.make_node("Mul", [gap, gap], [square]),
            helper.make_node("ReduceMean", [square, axes], [spread], keepdims=0),
        ]
        copies = [f"stored_mean_{number}", f"stored_variance_{number}"]
        copy = [helper.make_node("Identity", [a], [b]) for a, b in zip((mean, variance), copies, strict=True)]
        used = [f"used_mean_{number}", f"used_variance_{number}"]
        branches = {"then_branch": _branch(compute, [of_batch, spread]), "else_branch": _branch(copy, copies)}
        self.nodes.append(helper.make_node("If", [switch], used, f"If_{number}", **branches))
        return used[0], used[1]

    # The file ------------------------------------------------------------------------------------

    def finish(self, output: str, shape: Sequence[int | str], name: str = "output") -> bytes:
        """The content of an ONNX file with this one output."""
        self.nodes.append(helper.make_node("Identity", [output], [name], name))
        result = helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        graph = helper.make_graph(
            self.nodes, self.name, list(self.inputs.values()), [result], list(self.constants.values())
        )
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(
            graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="tta-bench"
        )
        onnx.checker.check_model(model)
        return model.SerializeToString()


def _branch(nodes: list[Any], outputs: list[str]) -> Any:
    """A graph for one case of an If node."""
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    return helper.make_graph(nodes, outputs[0], [], results)
