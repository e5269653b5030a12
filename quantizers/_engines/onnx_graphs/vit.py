"""The graphs of timm's vision transformers: patch embedding and blocks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from timm.layers import Attention, Mlp, PatchEmbed
from timm.models.vision_transformer import Block
from torch import nn

from tta_bench_quantizers._core.layers import QuantConv2d
from tta_bench_quantizers._engines.onnx_graphs.builder import GraphBuilder

TOKENS = ("batch", "tokens")


def unsupported_part(net: Any) -> str | None:
    """The first part of a transformer that has no graph here; None if all have."""
    patch: Any = net.patch_embed
    if type(patch) is not PatchEmbed or not (patch.flatten and _idle(patch.norm)) or patch.dynamic_img_pad:
        return "its patch embedding"
    return next((f"block {index}" for index, block in enumerate(net.blocks) if not _is_plain(block)), None)


def _is_plain(block: Any) -> bool:
    """Whether a block is attention and MLP behind LayerNorms, with nothing that the graph would leave out."""
    if type(block) is not Block or type(block.attn) is not Attention or type(block.mlp) is not Mlp:
        return False
    attn, mlp = block.attn, block.mlp
    optional = (attn.q_norm, attn.k_norm, getattr(attn, "norm", None), getattr(attn, "gate", None), mlp.norm)
    norms = (block.norm1, block.norm2)
    return (
        all(part is None or _idle(part) for part in optional)
        and all(_is_affine(norm) for norm in norms)
        and isinstance(mlp.act, nn.GELU)
    )


def _is_affine(norm: Any) -> bool:
    return isinstance(norm, nn.LayerNorm) and norm.weight is not None and norm.bias is not None


def unsupported_stem(net: Any) -> str | None:
    """The first part before or behind the blocks that an export has no graph of; None if it has all."""
    if not _idle(net.norm_pre):
        return "the norm before the blocks"
    if net.pos_embed is None:
        return "tokens without learned positions"
    if net.global_pool != "token" or not _idle(net.fc_norm) or not _is_affine(net.norm):
        return "the pooling of tokens: it reads features from the class token behind the last norm"
    return None


def _idle(module: Any) -> bool:
    return isinstance(module, nn.Identity)


def patch_graph(layer: QuantConv2d, size: int, site: str) -> bytes:
    """Patch embedding of normalised images [batch, 3, size, size]: tokens [batch, patches, width]."""
    graph = GraphBuilder("patch_embedding")
    tokens = add_patches(graph, graph.input("input", ["batch", 3, size, size]), layer, size, site)
    return graph.finish(tokens, ["batch", (size // layer.codes.shape[-1]) ** 2, len(layer.codes)])


def add_patches(graph: GraphBuilder, x: str, layer: QuantConv2d, size: int, site: str) -> str:
    """Cut images into patches as codes, and multiply: a convolution whose windows do not overlap."""
    channels, side = layer.codes.shape[1], layer.codes.shape[-1]
    rows = size // side
    codes, scale, zero = graph.quantized(x, layer)
    split = graph.op("Reshape", codes, graph.integers(-1, channels, rows, side, rows, side))
    patches = graph.op("Transpose", split, perm=[0, 2, 4, 3, 5, 1])
    codes = graph.op("Reshape", patches, graph.integers(-1, rows * rows, side * side * channels))
    return graph.product(codes, scale, zero, layer, site)


def block_graph(block: Any, site: str) -> bytes:
    """One block, tokens to tokens, at any number of tokens; the parameters of its norms are inputs."""
    width = block.norm1.normalized_shape[0]
    graph = GraphBuilder(site)
    x = graph.input("input", [*TOKENS, width])
    attention = _attention(graph, graph.layer_norm(x, block.norm1, "norm1."), block.attn, f"{site}.attn")
    x = graph.op("Add", x, _layer_scale(graph, attention, block.ls1))
    hidden = _mlp(graph, graph.layer_norm(x, block.norm2, "norm2."), block.mlp, f"{site}.mlp")
    x = graph.op("Add", x, _layer_scale(graph, hidden, block.ls2))
    return graph.finish(x, [*TOKENS, width])


def _attention(graph: GraphBuilder, x: str, attn: Any, site: str) -> str:
    """Self-attention; its two products are in float, as in the simulation."""
    heads, width = attn.num_heads, attn.proj.in_features
    qkv = graph.linear(x, attn.qkv, f"{site}.qkv")
    split = graph.op("Reshape", qkv, graph.integers(0, 0, 3, heads, -1))
    by_head = graph.op("Transpose", split, perm=[2, 0, 3, 1, 4])
    q, k, v = (graph.op("Gather", by_head, graph.constant(np.int64(i)), axis=0) for i in range(3))
    scaled = graph.op("Mul", q, graph.constant(np.float32(1 / math.sqrt(width // heads))))
    scores = graph.op("MatMul", scaled, graph.op("Transpose", k, perm=[0, 1, 3, 2]), name=f"{site}.matmul1")
    weights = graph.op("Softmax", scores, axis=-1)
    values = graph.op("MatMul", weights, v, name=f"{site}.matmul2")
    joined = graph.op("Transpose", values, perm=[0, 2, 1, 3])
    return graph.linear(graph.op("Reshape", joined, graph.integers(0, 0, width)), attn.proj, f"{site}.proj")


def _mlp(graph: GraphBuilder, x: str, mlp: Any, site: str) -> str:
    hidden = graph.linear(x, mlp.fc1, f"{site}.fc1")
    active = graph.op("Gelu", hidden, approximate=mlp.act.approximate)
    return graph.linear(active, mlp.fc2, f"{site}.fc2")


def _layer_scale(graph: GraphBuilder, x: str, scale: Any) -> str:
    return x if _idle(scale) else graph.op("Mul", x, graph.constant(scale.gamma))


def probed_norms(net: Any) -> list[nn.LayerNorm]:
    """The norms through which the class token is read after each block; a pooled network has no last one."""
    return [*(block.norm1 for block in net.blocks[1:]), *([] if _idle(net.norm) else [net.norm])]


def norm_graph(norm: nn.LayerNorm) -> bytes:
    """A LayerNorm on class tokens [rows, width]; its parameters are inputs."""
    width = norm.normalized_shape[0]
    graph = GraphBuilder("norm")
    x = graph.input("input", ["rows", width])
    return graph.finish(graph.layer_norm(x, norm), ["rows", width])


def stem_graph(model: Any) -> bytes:
    """Images in [0, 1] to tokens with positions: everything before the first block."""
    net, size = model.net, model.input_size
    proj, grid = net.patch_embed.proj, (size // net.patch_embed.proj.codes.shape[-1]) ** 2
    graph = GraphBuilder("stem")
    x = graph.input("input", ["batch", 3, size, size])
    centred = graph.op("Sub", x, graph.constant(model.mean))
    tokens = add_patches(
        graph, graph.op("Div", centred, graph.constant(model.std)), proj, size, "patch_embed.proj"
    )
    first = [token for token in (net.cls_token, getattr(net, "reg_token", None)) if token is not None]
    if net.no_embed_class:
        tokens = graph.op("Add", tokens, graph.constant(net.pos_embed))
    for token in reversed(first):
        tokens = _prepended(graph, tokens, token)
    if not net.no_embed_class:
        tokens = graph.op("Add", tokens, graph.constant(net.pos_embed))
    return graph.finish(tokens, ["batch", grid + net.num_prefix_tokens, len(proj.codes)])


def _prepended(graph: GraphBuilder, tokens: str, token: Any) -> str:
    """The tokens of every image behind one that all images share."""
    batch = graph.op("Shape", tokens, start=0, end=1)
    shape = graph.op("Concat", batch, graph.integers(*token.shape[1:]), axis=0)
    return graph.op("Concat", graph.op("Expand", graph.constant(token), shape), tokens, axis=1)
