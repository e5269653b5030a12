"""Engines replace what they can compute in a simulated network; everything else stays as it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec

from torch import nn

from tta_bench.api import Model
from tta_bench_quantizers._core.layers import QuantConv2d, QuantLayer, QuantLinear
from tta_bench_quantizers._core.sites import head_site, replace_module
from tta_bench_quantizers._engines.affine_layers import AffineIntegerConv2d, AffineIntegerLinear
from tta_bench_quantizers._engines.integer_layers import (
    NO_GRIDS,
    InputGrid,
    IntegerConv2d,
    IntegerLayer,
    IntegerLinear,
    grid_of,
    integer_layers,
)
from tta_bench_quantizers._engines.option import Engine

ONNX = ("onnx", "onnxruntime")


def unsupported_network(engine: Engine, model: Model) -> str | None:
    """Why an engine cannot compute this network here; None if it can."""
    if engine != "onnxruntime":
        return None
    if missing := [name for name in ONNX if find_spec(name) is None]:
        return f"engine onnxruntime needs {' and '.join(missing)}; run `pip install tta-bench[onnx]`"
    from tta_bench_quantizers._engines.onnx_graphs import network

    return network.unsupported_network(model)


def install_engine_(engine: Engine, model: Model, grids: Mapping[str, InputGrid] = NO_GRIDS) -> None:
    """Let the engine compute a simulated network, in place.

    `grids` has the grid of the input of layers, by name, that do not quantise their input themselves.
    """
    if engine == "torch-int8":
        integer_layers_(model.net, grids)
    elif engine == "onnxruntime":
        from tta_bench_quantizers._engines.onnx_graphs import network

        network.sessions_(model, grids)


def integer_layers_(net: nn.Module, grids: Mapping[str, InputGrid]) -> None:
    """Replace every simulated layer that can be computed in integers."""
    for name, module in list(net.named_modules()):
        if isinstance(module, QuantLayer):
            grid = grids.get(name) or grid_of(module.input)
            if grid is not None and (integer := _in_integers(module, grid)) is not None:
                replace_module(net, name, integer)


def _in_integers(layer: QuantLayer, grid: InputGrid) -> IntegerLayer | None:
    """A layer in integers, or None if there is no operator for it."""
    affine = layer.zero is not None
    if layer.bits != 8:
        return None
    if isinstance(layer, QuantLinear):
        return AffineIntegerLinear(layer, grid) if affine else IntegerLinear(layer, grid)
    if not isinstance(layer, QuantConv2d) or isinstance(layer.geometry[1], str):
        return None
    if not affine:
        return IntegerConv2d(layer, grid)
    return AffineIntegerConv2d(layer, grid) if layer.geometry[3] == 1 else None


def expected_integer_sites(engine: Engine, model: Model, sites: Sequence[str]) -> list[str]:
    """The sites of an unquantised network that an engine has to compute in integers.

    The first convolution is in float, because a pixel prompt is added to its input. `onnxruntime` leaves all
    that stands before the blocks of a convolutional network in float.
    """
    if model.tokens:
        return list(sites)
    if engine == "torch-int8":
        return list(sites[1:])
    inside = {module for block in model.blocks for module in block.modules()}
    return [site for site in sites if model.net.get_submodule(site) in inside or site == head_site(model)]


def integer_sites_of(engine: Engine, model: Model) -> list[str]:
    """The sites that the engine computes in integers."""
    if engine == "torch-int8":
        return integer_layers(model.net)
    if engine == "onnxruntime":
        from tta_bench_quantizers._engines.onnx_graphs import network

        return network.session_sites(model)
    return []


def unsupported_export_of(model: Model) -> str | None:
    """Why a network has no form as ONNX files here; None if it has."""
    if reason := unsupported_network("onnxruntime", model):
        return reason
    from tta_bench_quantizers._engines.onnx_graphs import network

    return network.unsupported_export(model)


def network_files_of(model: Model) -> dict[str, bytes]:
    """A simulated network as ONNX files."""
    from tta_bench_quantizers._engines.onnx_graphs.files import network_files

    return network_files(model)
