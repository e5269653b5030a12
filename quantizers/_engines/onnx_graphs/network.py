"""Engine `onnxruntime`: blocks, patch embedding and head of a simulated network as sessions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from tta_bench.api import NORM_TYPES, Model
from tta_bench_quantizers._core.sites import head_site, replace_module
from tta_bench_quantizers._engines.integer_layers import NO_GRIDS, InputGrid, PackedWeight
from tta_bench_quantizers._engines.onnx_graphs import resnet, vit
from tta_bench_quantizers._engines.onnx_graphs.builder import GraphBuilder
from tta_bench_quantizers._engines.onnx_graphs.sessions import (
    FeatureMapSession,
    HeadSession,
    NormForward,
    PatchSession,
    Session,
    SessionModule,
)


def unsupported_network(model: Model) -> str | None:
    """Why a network has no ONNX graphs here; None if it has."""
    if model.family not in ("vit", "resnet"):
        return f"engine onnxruntime has no graph of the blocks of {model.name}, a {model.family}"
    part = vit.unsupported_part(model.net) if model.family == "vit" else resnet.unsupported_part(model.net)
    return None if part is None else f"engine onnxruntime has no graph of {part} of {model.name}"


def unsupported_export(model: Model) -> str | None:
    """Why graphs cannot do all that a network does before and behind its blocks; None if they can."""
    part = vit.unsupported_stem(model.net) if model.tokens else resnet.unsupported_stem(model.net)
    return None if part is None else f"an export of {model.name} would have no graph of {part}"


def head_graph(layer: Any, site: str) -> bytes:
    """The classifier on features [batch, 1, width]."""
    graph = GraphBuilder("head")
    logits = graph.linear(graph.input("input", ["batch", 1, layer.in_features]), layer, site)
    return graph.finish(logits, ["batch", 1, layer.out_features])


def sessions_(model: Model, grids: Mapping[str, InputGrid] = NO_GRIDS) -> None:
    """Replace all parts of a simulated network that have a graph.

    `grids` has the grid of the input of layers, by name, that do not quantise their input themselves.
    """
    tokens, names = model.tokens, {id(module): name for name, module in model.net.named_modules()}
    site = head_site(model)
    replace_module(model.net, site, HeadSession(head_graph(model.classifier, site)))
    if tokens:
        _norm_sessions_(model.net)
    for block in list(model.blocks):
        name, norms = names[id(block)], dict(_norms(block))
        module = (
            SessionModule(vit.block_graph(block, name), norms)
            if tokens
            else FeatureMapSession(resnet.block_graph(block, name, grids), norms)
        )
        replace_module(model.net, name, module)
    if tokens:
        proj = model.net.patch_embed.proj
        content = vit.patch_graph(proj, model.input_size, "patch_embed.proj")
        model.net.patch_embed = PatchSession(content, PackedWeight(proj.codes, proj.scale, Tensor()))


def _norm_sessions_(net: Any) -> None:
    """Let graphs compute the norms that `probe` reads; equal graphs share a session."""
    started: dict[bytes, Session] = {}
    for norm in vit.probed_norms(net):
        content = vit.norm_graph(norm)
        if content not in started:
            started[content] = Session(content)
        norm.forward = NormForward(norm, started[content])  # type: ignore[method-assign]


def session_sites(model: Model) -> list[str]:
    """The sites that the optimised graphs compute in integers."""
    modules = [module for module in model.net.modules() if isinstance(module, SessionModule)]
    return [site for module in modules for site in module.session.integer_sites]


def _norms(block: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    return ((name, module) for name, module in block.named_modules() if isinstance(module, NORM_TYPES))
