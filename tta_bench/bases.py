"""Base classes of our own plugins that `tta_bench.api` offers to others, and the modules they are in.

Their modules import the API, so it imports them when they are asked for; the hash of a plugin's code follows
them there.
"""

from __future__ import annotations

from types import MappingProxyType

BASES = MappingProxyType(
    {
        "Corruptible": "tta_bench.data.corruptible",
        "ResNetModel": "tta_bench.models.resnet",
        "Split": "tta_bench.data.corruptible",
        "TimmModel": "tta_bench.models.imagenet",
        "VimModel": "tta_bench.models.vim",
        "VitModel": "tta_bench.models.vit",
    }
)
