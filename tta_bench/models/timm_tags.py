"""Any ViT, DeiT or ResNet of timm by its full tag, with the weights' own normalisation, size and crop."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import nn

from tta_bench.api import CountOrZero, View
from tta_bench.errors import closest
from tta_bench.models.imagenet import TimmModel
from tta_bench.models.variants import Deviations, Eps, Means, Stride, has_bottlenecks

MODULES = ("vision_transformer", "deit", "resnet")  # of timm, where the supported families live
SUPPORTED = (
    "Supported are ResNets and plain vision transformers with a class token, a linear head, and square "
    "images that are cut out at the centre."
)


@dataclass(frozen=True)
class TagFacts:
    """Facts about the weights of a tag."""

    family: str
    num_classes: int
    view: View
    scale: Mapping[str, tuple[float, ...]]
    has_bottlenecks: bool


@dataclass
class Timm(TimmModel):
    """A vision transformer or ResNet of timm: `timm:TAG`."""

    family = "vit or resnet"  # replaced when the tag is known

    tag: str = "deit_tiny_patch16_224.fb_in1k"  # name of the network in timm
    weights: str = "auto"
    classes: CountOrZero = 0  # of a fine-tuned state dict; 0: as many as the tag has
    mean: Means = None  # of the channels, for the normalisation of images; null: those of the weights
    std: Deviations = None  # standard deviations of the channels; null: those of the weights
    eps: Eps = None  # added to the variance by norms; null: that of the network
    # Which convolution of a bottleneck has the stride: its 3×3 (v1.5) or its first 1×1 (v1).
    stride: Stride = "v1.5"

    def __post_init__(self) -> None:
        facts = facts_of(self.tag)
        if self.classes and self.classes != facts.num_classes and self.weights == "auto":
            raise ValueError(
                f"{self.tag} has {facts.num_classes} classes, not {self.classes}. Give `weights: PATH`."
            )
        if self.stride == "v1" and not facts.has_bottlenecks:
            raise ValueError(f"{self.tag} has no bottleneck blocks, so it has no `stride: v1`. Leave it out.")
        self.name, self.family = self.title(), facts.family
        self.num_classes = self.classes or facts.num_classes
        self.input_size, self.view, self.scale = facts.view.size, facts.view, facts.scale

    def title(self) -> str:
        return self.tag.partition(".")[0]


@lru_cache(maxsize=256)
def facts_of(tag: str) -> TagFacts:
    """The facts of a tag; raises ValueError, with near matches, for one that is unknown or unsupported."""
    import timm
    from timm.models import get_pretrained_cfg

    known = [name for module in MODULES for name in timm.list_models(module=module, pretrained=True)]
    if tag not in known:
        raise ValueError(_unknown(tag, known))
    config: Any = get_pretrained_cfg(tag)
    with torch.device("meta"):
        net: Any = timm.create_model(tag)
    family = _family(net)
    _, height, width = config.input_size
    if family is None or height != width or config.crop_mode != "center":
        raise ValueError(f'"{tag}" is not supported. {SUPPORTED} {_near(tag, known)}')
    view = View(width, math.floor(width / config.crop_pct), config.interpolation)
    scale = dict(mean=config.mean, std=config.std)
    return TagFacts(family, config.num_classes, view, scale, has_bottlenecks(net))


def _family(net: Any) -> str | None:
    """The family whose adapter fits a network; None if there is none."""
    from timm.models.resnet import ResNet
    from timm.models.vision_transformer import VisionTransformer

    if type(net) is ResNet and isinstance(net.fc, nn.Linear):
        return "resnet"
    plain = type(net) is VisionTransformer and net.cls_token is not None
    if plain and net.global_pool in ("token", "avg") and isinstance(net.head, nn.Linear):
        return "vit"
    return None


def _unknown(tag: str, known: list[str]) -> str:
    of_architecture = [name for name in known if name.startswith(f"{tag}.")]
    if of_architecture:  # timm's default for a bare architecture has changed between versions
        return f'"{tag}" names no weights. Write one of {", ".join(of_architecture)}.'
    return f'"{tag}" is no tag of timm\'s ViT, DeiT and ResNet families. {_near(tag, known)}'


def _near(tag: str, known: list[str]) -> str:
    close = [name for name in closest(tag, known, 4) if name != tag]
    return f"Near it: {', '.join(close)}." if close else "`timm.list_models(pretrained=True)` lists all tags."
