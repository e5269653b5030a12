"""Engines replace what they can compute in a simulated network; everything else stays as it was."""

from __future__ import annotations

from importlib.util import find_spec

from tta_bench.api import Model
from tta_bench_quantizers._engines.integer_layers import integer_layers, integer_layers_
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


def install_engine_(engine: Engine, model: Model) -> None:
    """Let the engine compute a simulated network, in place."""
    if engine == "torch-int8":
        integer_layers_(model.net)
    elif engine == "onnxruntime":
        from tta_bench_quantizers._engines.onnx_graphs import network

        network.sessions_(model)


def integer_sites_of(engine: Engine, model: Model) -> list[str]:
    """The sites that the engine computes in integers."""
    if engine == "torch-int8":
        return integer_layers(model.net)
    if engine == "onnxruntime":
        from tta_bench_quantizers._engines.onnx_graphs import network

        return network.session_sites(model)
    return []


def network_files_of(model: Model) -> dict[str, bytes]:
    """A simulated network as ONNX files."""
    from tta_bench_quantizers._engines.onnx_graphs.files import network_files

    return network_files(model)
