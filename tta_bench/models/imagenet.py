"""ImageNet-1k classifiers at paper scale; each pins the exact weights its reference numbers used."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from tta_bench.api import Model, ModelSource

CLASSES = 1000
IMAGENET = dict(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
HALF = dict(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))


class WeightsUnavailable(RuntimeError):
    """The weights of a model cannot be had here."""


class ImageNetModel(ModelSource):
    """Base: `weights` is `auto` (timm's hub), `random`, or the path of a local state dict."""

    num_classes = CLASSES
    input_size = 224
    paths = ("weights",)  # the fingerprint says what they are
    weights: str
    name: ClassVar[str]
    tag: ClassVar[str]
    scale: ClassVar[Mapping[str, tuple[float, ...]]]

    def build(self) -> Model:
        model = self._wrap(self._pretrained() if self.weights == "auto" else self._net())
        if self.weights not in ("auto", "random"):
            model.net.load_state_dict(self._read(Path(self.weights)))
        model.weights_sha256 = self.fingerprint()
        return model.eval().requires_grad_(False)

    def skeleton(self) -> Model:
        return self._wrap(self._net()).eval()

    def fingerprint(self) -> str:
        if self.weights in ("auto", "random"):
            return f"{self.weights}:{self.tag}"
        digest = hashlib.sha256()
        with open(self.weights, "rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
        return digest.hexdigest()

    def problems(self) -> list[str]:
        if self.weights not in ("auto", "random") and not Path(self.weights).is_file():
            return [f"weights file {self.weights} is missing. Give the path of a state dict, or `auto`."]
        return []

    def _facts(self) -> dict[str, Any]:
        return dict(name=self.name, num_classes=CLASSES, input_size=self.input_size, **self.scale)

    def _net(self) -> nn.Module:
        import timm

        return timm.create_model(self.tag)

    def _pretrained(self) -> nn.Module:
        import timm

        try:
            return timm.create_model(self.tag, pretrained=True)
        except Exception as error:  # the hub raises its own zoo of network errors
            raise WeightsUnavailable(
                f"{self.name}: the weights {self.tag} cannot be downloaded ({type(error).__name__}). "
                "Download them where there is a network and give `weights: <path>`."
            ) from error

    def _read(self, path: Path) -> dict[str, Any]:
        """Tensors only: a file cannot run code here."""
        import torch
        from safetensors.torch import load_file

        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
        return state.get("model", state)

    def _wrap(self, net: nn.Module) -> Model:
        raise NotImplementedError


class TimmVit(ImageNetModel):
    """A timm vision transformer."""

    family = "vit"
    scale = HALF

    def _wrap(self, net: nn.Module) -> Model:
        from tta_bench.models.vit import VitModel

        return VitModel(net, **self._facts())


@dataclass
class VitB(TimmVit):
    """ViT-B/16, the augreg2 weights that FOA's and ZOA's numbers were made with."""

    name = "vit-b"
    tag = "vit_base_patch16_224.augreg2_in21k_ft_in1k"
    weights: str = "auto"


@dataclass
class VitL(TimmVit):
    """ViT-L/16."""

    name = "vit-l"
    tag = "vit_large_patch16_224.augreg_in21k_ft_in1k"
    weights: str = "auto"


@dataclass
class ResNet50(ImageNetModel):
    """ResNet-50 with torchvision's first weights, as MQBench and ZOA use it."""

    family = "resnet"
    name = "resnet-50"
    tag = "resnet50.tv_in1k"
    scale = IMAGENET
    weights: str = "auto"

    def _wrap(self, net: nn.Module) -> Model:
        from tta_bench.models.resnet import ResNetModel

        return ResNetModel(net, **self._facts())


@dataclass
class VimS(ImageNetModel):
    """Vim-S with the class token in the middle; official checkpoint, by path only."""

    family = "vim"
    name = "vim-s"
    tag = "vim_s_midclstok"
    scale = IMAGENET
    weights: str = "random"

    def _net(self) -> nn.Module:
        from tta_bench.models.vision_mamba import VisionMamba

        return VisionMamba()

    def _pretrained(self) -> nn.Module:
        raise WeightsUnavailable(
            "vim-s: no hub serves these weights by name. Download vim_s_midclstok_80p5acc.pth from the "
            "authors' page and give `weights: <path>`."
        )

    def _wrap(self, net: nn.Module) -> Model:
        from tta_bench.models.vim import VimModel

        return VimModel(net, **self._facts())
