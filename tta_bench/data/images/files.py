"""Base class of data in image files: cropping, decoding and reading ahead."""

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
from tta_bench.data.images import decode
from tta_bench.data.images.class_folders import ClassFolders, ImageFile
from tta_bench.data.images.pixels import to_tensor


@dataclass
class ImageFiles(Data):
    """Images are resized and cropped as for the model's weights, unless the benchmark file says otherwise."""

    read_ahead: ClassVar[int] = 2
    paths: ClassVar[tuple[str, ...]] = ("root",)

    root: str = ""  # folder of the images; by default looked for in $TTA_BENCH_DATA
    source_count: Count = 512  # clean images for statistics and calibration
    resize: CountOrZero = 256  # 0: not resized
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"  # of resizing

    @classmethod
    def presets(cls, model: ModelSource) -> dict[str, Any]:
        """The size, resizing and interpolation that the model's weights were evaluated with."""
        if model.view is None:
            return {}
        view = model.view
        wishes = {"resize": view.resize, "interpolation": view.interpolation, "input_size": view.size}
        mine = {field.name for field in dataclasses.fields(cls)}  # the images of ImageNet-C have a fixed size
        return {name: wish for name, wish in wishes.items() if name in mine}

    @abstractmethod
    def source_paths(self) -> Sequence[Path]:
        """The paths of the clean images of the training domain."""

    def source_images(self) -> Tensor:
        return to_tensor(self._source)

    @property
    def view(self) -> View:
        """How an image of any size is resized and cropped."""
        return View(self.input_size, self.resize, self.interpolation)

    def view_problems(self) -> list[str]:
        """Why images cannot be resized and cropped in this way."""
        if 0 < self.resize < self.input_size:
            return [
                f"resize {self.resize}: less than the crop of {self.input_size} pixels. Raise data.resize."
            ]
        return []

    @cached_property
    def _source(self) -> np.ndarray:
        return decode.read_all(self.source_paths(), self.view)


def read_tensor(tree: ClassFolders, files: Sequence[ImageFile], view: View) -> Tensor:
    """The images of these files, decoded now."""
    return to_tensor(decode.read_all([tree.path(file) for file in files], view))
