"""The families of networks, on which presets of methods depend, and what each name means."""

from __future__ import annotations

from types import MappingProxyType

FAMILIES = MappingProxyType(
    {
        "vit": (
            "a vision transformer: the hidden state is a sequence of tokens, class token first; pre-norm "
            "blocks with LayerNorm. Methods take the settings published for ViT-B."
        ),
        "resnet": (
            "a residual network of convolutions with BatchNorm2d: the hidden state is a feature map, a "
            "prompt is a 7×7 kernel over the pixels. Methods take the settings published for ResNet-50."
        ),
        "vim": (
            "Vision Mamba: the hidden state is a sequence of tokens, class token in the middle; blocks with "
            "RMSNorm. Methods take the settings published for Vim-S."
        ),
    }
)
