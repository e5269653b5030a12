"""Base classes of our own plugins that `tta_bench.api` offers, and the modules they are in.

These modules import the API, so the API imports them only on first use. The hash of a plugin's code covers
them.
"""

from __future__ import annotations

from types import MappingProxyType

BASES = MappingProxyType(
    {
        "Corruptible": "tta_bench.data.corrupted.in_memory",
        "MambaMixer": "tta_bench.models.vision_mamba",
        "ResNetModel": "tta_bench.models.resnet",
        "Split": "tta_bench.data.corrupted.in_memory",
        "TimmModel": "tta_bench.models.imagenet",
        "VimModel": "tta_bench.models.vim",
        "VitModel": "tta_bench.models.vit",
    }
)
