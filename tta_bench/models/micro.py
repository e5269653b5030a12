"""The embedded 32-pixel networks: small versions of ViT-B, ResNet-50 and Vim-S with the same module names."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from tta_bench.api import Model, ModelSource
from tta_bench.models.adapters import ADAPTERS
from tta_bench.models.vision_mamba import VisionMamba

CLASSES = 10


def build_vit() -> nn.Module:
    """timm VisionTransformer: patch 4, 64 patches + class token, 6 blocks."""
    from timm.models import VisionTransformer

    return VisionTransformer(
        img_size=32, patch_size=4, embed_dim=64, depth=6, num_heads=4, mlp_ratio=2, num_classes=CLASSES
    )


def build_resnet() -> nn.Module:
    """timm bottleneck ResNet with layer1–4; the stem is a 3×3 of stride 2 without pooling."""
    from timm.models.resnet import Bottleneck, ResNet

    net: Any = ResNet(
        Bottleneck,  # type: ignore[arg-type]  # timm annotates the instance, and takes the class
        (2, 3, 4, 2),
        num_classes=CLASSES,
        channels=(16, 32, 56, 96),
    )
    net.conv1 = nn.Conv2d(3, 64, 3, stride=2, padding=1, bias=False)
    net.maxpool = nn.Identity()
    return net


def build_vim() -> nn.Module:
    """Vision Mamba: patch 4, 64 patches with the class token in their middle, 6 blocks."""
    return VisionMamba(img_size=32, patch_size=4, embed_dim=64, depth=6, d_state=4, num_classes=CLASSES)


BUILDERS = {"vit": build_vit, "resnet": build_resnet, "vim": build_vim}


class Embedded(ModelSource):
    """Base of the three: weights come with the package, inputs are scaled to ±1."""

    num_classes = CLASSES
    input_size = 32
    file: ClassVar[str]

    def build(self) -> Model:
        from safetensors.torch import load

        model = self.skeleton()
        model.net.load_state_dict(load(self._asset().read_bytes()))
        model.weights_sha256 = self.fingerprint()
        return model.eval().requires_grad_(False)

    def skeleton(self) -> Model:
        half = (0.5, 0.5, 0.5)
        facts: dict[str, Any] = dict(num_classes=CLASSES, input_size=self.input_size, mean=half, std=half)
        name = self.file.removesuffix(".safetensors")
        architecture = name.removesuffix("-micro")  # a subclass may state another family
        return ADAPTERS[architecture](BUILDERS[architecture](), name=name, **facts).eval()

    def fingerprint(self) -> str:
        return hashlib.sha256(self._asset().read_bytes()).hexdigest()

    def _asset(self) -> Path:
        return Path(str(resources.files("tta_bench"))) / "assets" / self.file


@dataclass
class VitMicro(Embedded):
    """Vision transformer, 6 blocks of width 64, patch 4."""

    family = "vit"
    file = "vit-micro.safetensors"


@dataclass
class ResNetMicro(Embedded):
    """Bottleneck ResNet, 11 blocks in four stages."""

    family = "resnet"
    file = "resnet-micro.safetensors"


@dataclass
class VimMicro(Embedded):
    """Vision Mamba, 6 bidirectional blocks of width 64, patch 4."""

    family = "vim"
    file = "vim-micro.safetensors"
