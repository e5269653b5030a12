"""What all data in image files has in common: how it is cut, decoded and read ahead."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from torch import Tensor

from tta_bench.api import Count, CountOrZero, Data, ModelSource, View
from tta_bench.data import decode
from tta_bench.data.pixels import to_tensor


@dataclass
class ImageFiles(Data):
    """Images are cut as the model's weights want it, unless the file says how."""

    read_ahead: ClassVar[int] = 2
    paths: ClassVar[tuple[str, ...]] = ("root",)

    root: str = ""
    source_count: Count = 512  # clean images for statistics and calibration
    resize: CountOrZero = 256  # 0: not resized
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"

    @classmethod
    def presets(cls, model: ModelSource) -> dict[str, Any]:
        """The size, resizing and interpolation that the model's weights were evaluated with."""
        if model.view is None:
            return {}
        view = model.view
        wishes = {"resize": view.resize, "interpolation": view.interpolation, "input_size": view.size}
        mine = {field.name for field in dataclasses.fields(cls)}  # ImageNet-C has the size it has
        return {name: wish for name, wish in wishes.items() if name in mine}

    @abstractmethod
    def source_paths(self) -> Sequence[Path]:
        """Where the clean images of the training domain lie."""

    def source_images(self) -> Tensor:
        return to_tensor(self._source)

    @property
    def view(self) -> View:
        """How an image of any size is cut."""
        return View(self.input_size, self.resize, self.interpolation)

    def view_problems(self) -> list[str]:
        """What keeps images from being cut so, the model's wishes being known."""
        if 0 < self.resize < self.input_size:
            return [
                f"resize {self.resize}: {self.input_size} pixels are to be cut out. Set data.resize higher."
            ]
        return []

    @cached_property
    def _source(self) -> np.ndarray:
        return decode.read_all(self.source_paths(), self.view)
