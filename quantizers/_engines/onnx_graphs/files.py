"""A simulated network as ONNX files, which any program can run and adapt without this package."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import onnx
from torch import nn

from tta_bench.api import Model
from tta_bench_quantizers._core.sites import head_site
from tta_bench_quantizers._engines.onnx_graphs import resnet, vit
from tta_bench_quantizers._engines.onnx_graphs.network import head_graph

FORMAT = "tta-bench-network-1"


def network_files(model: Model) -> dict[str, bytes]:
    """The files of a network by name: graphs, parameters of norms, and a description in `network.json`."""
    graphs = _graphs(model)
    files = {f"{name}.onnx": content for name, content in graphs.items()}
    files["parameters.npz"] = _parameters(model)
    described = _facts(model) | {"files": {name: _signature(content) for name, content in graphs.items()}}
    files["network.json"] = json.dumps(described, indent=1).encode() + b"\n"
    return files


def _graphs(model: Model) -> dict[str, bytes]:
    """The content of the graphs in the order in which images pass them."""
    names = {id(module): name for name, module in model.net.named_modules()}
    family: Any = vit if model.tokens else resnet
    graphs = {"stem": family.stem_graph(model)}
    if not model.tokens:
        graphs["entry"] = resnet.entry_graph(model)
    for index, block in enumerate(model.blocks):
        graphs[f"block_{index:02d}"] = family.block_graph(block, names[id(block)])
    if model.tokens:
        norms = vit.probed_norms(model.net)
        graphs |= {f"probe_{index:02d}": vit.norm_graph(norm) for index, norm in enumerate(norms)}
    site = head_site(model)
    return graphs | {"head": head_graph(model.classifier, site)}


def _parameters(model: Model) -> bytes:
    """γ, β and the stored statistics of all norms, by name, as NumPy's npz."""
    arrays: dict[str, np.ndarray] = {}
    for norm in model.norms():
        module: Any = norm.module
        arrays |= {f"{norm.name}.weight": module.weight.numpy(), f"{norm.name}.bias": module.bias.numpy()}
        if isinstance(module, nn.BatchNorm2d) and module.running_mean is not None:
            arrays[f"{norm.name}.mean"] = module.running_mean.numpy()
            arrays[f"{norm.name}.variance"] = module.running_var.numpy()  # type: ignore[union-attr]
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]
    return content.getvalue()


def _facts(model: Model) -> dict[str, Any]:
    """What a program needs besides the graphs: the order of norms, and where they are."""
    blocks = {id(block): name for name, block in model.net.named_modules()}
    return {
        "format": FORMAT,
        "model": model.name,
        "family": model.family,
        "bits": str(model.bits),
        "weights_sha256": model.weights_sha256,
        "input_size": model.input_size,
        "num_classes": model.num_classes,
        "blocks": [blocks[id(block)] for block in model.blocks],
        "norms": [
            {
                "name": n.name,
                "block": n.block,
                "epsilon": n.module.eps,
                "closes_branch": model.closes_branch(n),
            }
            for n in model.norms()
        ],
    }


def _signature(content: bytes) -> dict[str, Any]:
    """The inputs and the output of a graph with their shapes; a text is a size that varies."""
    graph = onnx.load_from_string(content).graph
    return {
        "inputs": {each.name: _shape(each) for each in graph.input},
        "output": {each.name: _shape(each) for each in graph.output},
        "bytes": len(content),
    }


def _shape(value: Any) -> list[int | str]:
    return [size.dim_param or size.dim_value for size in value.type.tensor_type.shape.dim]
