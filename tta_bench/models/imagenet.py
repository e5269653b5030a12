"""ImageNet-1k classifiers of the paper; each pins the weights with which the published numbers were made."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tta_bench.api import Model, ModelSource, View
from tta_bench.cache.content_hash import file_sha256
from tta_bench.models import weights as state_dicts
from tta_bench.models.adapters import ADAPTERS
from tta_bench.models.resnet import ResNetModel
from tta_bench.models.variants import Deviations, Eps, Means, Stride, set_eps_, use_v1_strides_
from tta_bench.models.vision_mamba import VisionMamba
from tta_bench.models.weights import BadWeights

IMAGENET = dict(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
HALF = dict(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))


class ImageNetModel(ModelSource):
    """Base: `weights` is `auto` (the hub's, under the pinned tag), `random`, or a state dict's path.

    A subclass defines its network (`network`). `mean`, `std`, `eps` and `stride` say how its weights
    were trained if that differs from `scale` and the architecture's defaults.
    """

    num_classes = 1000
    input_size = 224
    paths = ("weights",)  # the fingerprint identifies them
    weights: str  # `auto`: the published weights; a path; or `random`
    name: str
    tag: str
    scale: Mapping[str, tuple[float, ...]]
    mean: Means = None  # of the channels, for the normalisation of images; null: those of the weights
    std: Deviations = None  # standard deviations of the channels; null: those of the weights
    eps: Eps = None  # added to the variance by norms; null: that of the network
    # Which convolution of a bottleneck has the stride: its 3×3 (v1.5) or its first 1×1 (v1).
    stride: Stride = "v1.5"

    @abstractmethod
    def network(self) -> nn.Module:
        """The network with arbitrary weights."""

    def adapter(self, net: nn.Module, **facts: Any) -> Model:
        """The network in the adapter of its family."""
        return ADAPTERS.get(self.family, ResNetModel)(net, **facts)

    def build(self) -> Model:
        if self.weights == "random":
            net = self._random()
            digest = state_dicts.tensors_sha256(net.state_dict())
        else:
            net, path = self._net(), self._file()
            state_dicts.load_(net, path)
            digest = file_sha256(path)
        model = self.adapter(net, **self._facts(), weights_sha256=digest)
        return model.eval().requires_grad_(False)

    def skeleton(self) -> Model:
        return self.adapter(self._net(), **self._facts()).eval()

    def fingerprint(self) -> str:
        """SHA-256 of the weights' file, or of random tensors; empty if the file is not here yet."""
        if self.weights == "random":
            return state_dicts.tensors_sha256(self._random().state_dict())
        path = self._local() if self.weights == "auto" else Path(self.weights).expanduser()
        try:
            return file_sha256(path) if path else ""
        except OSError:  # `problems` reports it
            return ""

    def fetch(self) -> None:
        if self.weights == "auto":
            with suppress(BadWeights):
                self._fetched()

    def problems(self) -> list[str]:
        if self.weights == "random":
            return []
        try:
            path = self._file()
            state = state_dicts.read(path, "meta")
        except BadWeights as error:
            return [str(error)]
        with torch.device("meta"):
            wrong = state_dicts.misfit(state, self._net())
        return [f"{path}: {wrong}. Give a state dict of {self.name}."] if wrong else []

    def _net(self) -> nn.Module:
        """The network with arbitrary weights and the settings of `eps` and `stride`."""
        net = self.network()
        if self.eps is not None:
            set_eps_(net, self.eps)
        if self.stride == "v1":
            use_v1_strides_(net)
        return net

    def _local(self) -> Path | None:
        """The file that `auto` refers to, if it is on this machine."""
        return None

    @abstractmethod
    def _fetched(self) -> Path:
        """The file that `auto` refers to, downloaded if necessary."""

    def _facts(self) -> dict[str, Any]:
        given = {"mean": self.mean, "std": self.std}
        scale = dict(self.scale) | {key: value for key, value in given.items() if value is not None}
        return dict(name=self.name, num_classes=self.num_classes, input_size=self.input_size, **scale)

    def _file(self) -> Path:
        if self.weights == "auto":
            return self._fetched()
        path = Path(self.weights).expanduser()
        if not path.is_file():
            raise BadWeights(
                f"weights file {path} is missing. Give the path of a state dict, `auto` or `random`."
            )
        return path

    def _random(self) -> nn.Module:
        # The same numbers in every process: a cell may be split over several.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return self._net()


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
