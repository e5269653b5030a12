"""ViT-B/16 with torchvision's weights: the architecture of `vit-b`, another training and normalisation.

Published numbers are of one lineage or the other (docs/data.md); rows of both must not be compared.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from tta_bench.api import View
from tta_bench.models.imagenet import IMAGENET, ImageNetModel
from tta_bench.models.torchvision.hub import fetch, in_torch_cache

FILE = "vit_b_16-c867db91.pth"  # IMAGENET1K_V1
# torchvision's names as patterns, and timm's; older files call the layers of an MLP linear_1 and linear_2.
NAMES = (
    (r"^class_token$", "cls_token"),
    (r"^conv_proj\.", "patch_embed.proj."),
    (r"^encoder\.pos_embedding$", "pos_embed"),
    (r"^encoder\.layers\.encoder_layer_(\d+)\.", r"blocks.\1."),
    (r"\.ln_([12])\.", r".norm\1."),
    (r"\.self_attention\.in_proj_", ".attn.qkv."),
    (r"\.self_attention\.out_proj\.", ".attn.proj."),
    (r"\.mlp\.(linear_1|0)\.", ".mlp.fc1."),
    (r"\.mlp\.(linear_2|3)\.", ".mlp.fc2."),
    (r"^encoder\.ln\.", "norm."),
    (r"^heads\.head\.", "head."),
)


@dataclass
class VitBTorchvision(ImageNetModel):
    """ViT-B/16, torchvision's IMAGENET1K_V1 weights with ImageNet's mean and standard deviation."""

    family = "vit"
    name = "vit-b-torchvision"
    scale = IMAGENET
    view = View(224, 256, "bilinear")

    weights: str = "auto"

    def network(self) -> nn.Module:
        import timm

        return timm.create_model("vit_base_patch16_224", num_classes=self.num_classes)

    def renamed(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        return {timm_name(key): tensor for key, tensor in state.items()}

    def _local(self) -> Path | None:
        return in_torch_cache(FILE)

    def _fetched(self) -> Path:
        return fetch(FILE, _address)


def timm_name(key: str) -> str:
    """The name of a parameter of torchvision's VisionTransformer in timm's; other names stay."""
    for pattern, name in NAMES:
        key = re.sub(pattern, name, key)
    return key


def _address() -> str:
    from torchvision.models import ViT_B_16_Weights

    return ViT_B_16_Weights.IMAGENET1K_V1.url
