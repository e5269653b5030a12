"""ImageNet-1k classifiers of the paper; each pins the weights with which the published numbers were made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from tta_bench.api import Model, View
from tta_bench.models import weights as state_dicts
from tta_bench.models.adapters import ADAPTERS
from tta_bench.models.checkpointed import CheckpointedModel
from tta_bench.models.resnet import ResNetModel
from tta_bench.models.variants import Deviations, Eps, Means, Stride, use_v1_strides_
from tta_bench.models.vision_mamba import VisionMamba
from tta_bench.models.weights import BadWeights

IMAGENET = dict(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
HALF = dict(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))


class ImageNetModel(CheckpointedModel):
    """Base: 1000 classes at 224 pixels. `tag` pins the weights of `auto`; `stride` says where strides are."""

    num_classes = 1000
    input_size = 224
    tag: str
    # Which convolution of a bottleneck has the stride: its 3×3 (v1.5) or its first 1×1 (v1).
    stride: Stride = "v1.5"

    def adapter(self, net: nn.Module, **facts: Any) -> Model:
        """The network in the adapter of its family."""
        return ADAPTERS.get(self.family, ResNetModel)(net, **facts)

    def _net(self) -> nn.Module:
        net = super()._net()
        if self.stride == "v1":
            use_v1_strides_(net)
        return net


class TimmModel(ImageNetModel):
    """A network of timm, with the hub's weights under the full tag, or your own."""

    tag = ""  # empty: there are only your own weights

    def network(self) -> nn.Module:
        import timm

        return timm.create_model(self.tag, num_classes=self.num_classes)

    def _local(self) -> Path | None:
        return state_dicts.in_hub_cache(f"timm/{self.tag}") if self.tag else None

    def _fetched(self) -> Path:
        if not self.tag:
            raise BadWeights(
                f"{self.name} has no weights on a hub. Give `weights: PATH` or `weights: random`."
            )
        return state_dicts.fetch(f"timm/{self.tag}")


@dataclass
class VitB(TimmModel):
    """ViT-B/16, the augreg2 weights that FOA's and ZOA's numbers were made with."""

    family = "vit"
    name = "vit-b"
    tag = "vit_base_patch16_224.augreg2_in21k_ft_in1k"
    scale = HALF
    view = View(224, 248, "bicubic")

    weights: str = "auto"


@dataclass
class VitL(VitB):
    """ViT-L/16."""

    name = "vit-l"
    tag = "vit_large_patch16_224.augreg_in21k_ft_in1k"


@dataclass
class ResNet50(TimmModel):
    """ResNet-50 with torchvision's first weights, as MQBench and ZOA use it."""

    family = "resnet"
    name = "resnet-50"
    tag = "resnet50.tv_in1k"
    scale = IMAGENET
    view = View(224, 256, "bilinear")

    weights: str = "auto"
    mean: Means = None  # of the channels, for the normalisation of images; null: those of the weights
    std: Deviations = None  # standard deviations of the channels; null: those of the weights
    eps: Eps = None  # added to the variance by norms; null: that of the network
    # Which convolution of a bottleneck has the stride: its 3×3 (v1.5) or its first 1×1 (v1).
    stride: Stride = "v1.5"


@dataclass
class ResNet50Timm(ResNet50):
    """ResNet-50 with timm's weights (A1), another training than that of resnet-50."""

    name = "resnet-50-timm"
    tag = "resnet50.a1_in1k"
    view = View(224, 235, "bicubic")


@dataclass
class VimS(ImageNetModel):
    """Vim-S with the class token in the middle; official checkpoint, by path only."""

    family = "vim"
    name = "vim-s"
    tag = "vim_s_midclstok"
    scale = IMAGENET
    view = View(224, 256, "bicubic")

    weights: str = "auto"

    def network(self) -> nn.Module:
        return VisionMamba()

    def _fetched(self) -> Path:
        raise BadWeights(
            "no hub serves the weights of vim-s by name. Download vim_s_midclstok_80p5acc.pth from its "
            "authors' page and give `weights: PATH`, or `weights: random` to try things out."
        )
