"""The adapter of each family of networks."""

from __future__ import annotations

from tta_bench.api import Model
from tta_bench.models.resnet import ResNetModel
from tta_bench.models.vim import VimModel
from tta_bench.models.vit import VitModel

ADAPTERS: dict[str, type[Model]] = {"vit": VitModel, "resnet": ResNetModel, "vim": VimModel}
