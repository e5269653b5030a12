"""Where MQBench's academic backend quantises a ResNet: its tensors, and the units of reconstruction.

A tensor that feeds a convolution or the classifier is quantised where it is made, so that all of its
readers see the quantised values: a residual shortcut too.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from tta_bench.api import Model

INPUT = "input"  # the network's input has no producing module
POOLED = "global_pool"


@dataclass(frozen=True)
class TensorSite:
    """A quantised tensor: the module whose output it is, and one layer that reads it."""

    producer: str
    reader: str


def tensor_sites(model: Model) -> list[TensorSite]:
    """Input, pooled stem, every inner activation, every block output but the last, pooled features."""
    blocks = block_names(model)
    sites = [TensorSite(INPUT, "conv1"), TensorSite("maxpool", f"{blocks[0]}.conv1")]
    for index, name in enumerate(blocks):
        depth = conv_count(model.net.get_submodule(name))
        sites += [TensorSite(f"{name}.act{i}", f"{name}.conv{i + 1}") for i in range(1, depth)]
        if index + 1 < len(blocks):
            sites.append(TensorSite(f"{name}.act{depth}", f"{blocks[index + 1]}.conv1"))
    return [*sites, TensorSite(POOLED, "fc")]


def readers(model: Model, site: TensorSite) -> list[str]:
    """All layers that read a tensor: the shortcut of a block reads what its first convolution reads."""
    shortcut = f"{site.reader.removesuffix('conv1')}downsample.0"
    known = dict(model.net.named_modules())
    return [site.reader, *([shortcut] if site.reader.endswith(".conv1") and shortcut in known else [])]


def layer_units(model: Model) -> list[tuple[str, ...]]:
    """Each layer with the modules after it up to the next layer or sum, in the order of computation."""
    units: list[tuple[str, ...]] = [("conv1", "bn1", "act1", "maxpool")]
    for name in block_names(model):
        block = model.net.get_submodule(name)
        depth = conv_count(block)
        for i in range(1, depth):
            units.append((f"{name}.conv{i}", f"{name}.bn{i}", f"{name}.act{i}"))
        units.append((f"{name}.conv{depth}", f"{name}.bn{depth}"))
        if getattr(block, "downsample", None) is not None:
            units.append((f"{name}.downsample.0", f"{name}.downsample.1"))
    return [*units, ("fc",)]


def block_names(model: Model) -> list[str]:
    """Names of the residual blocks in order."""
    names = {id(module): name for name, module in model.net.named_modules()}
    return [names[id(block)] for block in model.blocks]


def conv_count(block: nn.Module) -> int:
    """Convolutions on a block's branch: two in a basic block, three in a bottleneck."""
    return 3 if hasattr(block, "conv3") else 2


def unsupported_network(model: Model) -> str | None:
    """Why `tensor_sites` does not fit this network, whatever its `family`; None if it fits."""
    if model.tokens:
        return f"quantises ResNets, and {model.name} is a {model.family}"
    if missing := _missing(model):
        names = "modules called as timm's ResNets have them"
        return f"quantises ResNets with {names}, and {model.name} has no {missing}"
    if all(_is_plain(block) for block in model.blocks):
        return None
    return f"quantises ResNets of plain blocks, and {model.name} has pooling or attention in between"


def _missing(model: Model) -> str | None:
    """The first module that a site needs and the network lacks."""
    modules = dict(model.net.named_modules())
    inside = {id(module) for module in modules.values()}
    if not all(id(block) in inside for block in model.blocks):
        return "modules in `net` that are its blocks"
    wanted: list[tuple[str, type[nn.Module]]] = [("conv1", nn.Conv2d), ("bn1", nn.Module)]
    wanted += [("act1", nn.Module), ("maxpool", nn.Module), ("fc", nn.Linear)]
    for name in block_names(model):
        for i in range(1, conv_count(modules[name]) + 1):
            wanted += [(f"{name}.conv{i}", nn.Conv2d), (f"{name}.bn{i}", nn.Module)]
            wanted += [(f"{name}.act{i}", nn.Module)]
    return next(
        (f"{kind.__name__} net.{n}" for n, kind in wanted if not isinstance(modules.get(n), kind)), None
    )


def _is_plain(block: nn.Module) -> bool:
    """Whether a block has only layers, norms and activations, without pooling, squeeze or anti-aliasing."""
    shortcut = getattr(block, "downsample", None)
    pooled = shortcut is not None and not isinstance(next(shortcut.children(), None), nn.Conv2d)
    smooths = not isinstance(getattr(block, "aa", nn.Identity()), nn.Identity)
    return getattr(block, "se", None) is None and not smooths and not pooled
