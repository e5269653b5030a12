"""What a worker keeps between tasks: data, and models as quantised and ready to be copied."""

from __future__ import annotations

import copy
import json
from collections import OrderedDict
from typing import Any

import torch

from tta_bench import calibration
from tta_bench.api import Data, Model, Quantizer
from tta_bench.data import cache
from tta_bench.errors import Unsupported
from tta_bench.grid import Cell, Part
from tta_bench.models.restricted import restrict_classes_

MODELS_KEPT = 4


class Warm:
    """Builds on first use, keeps the last few in main memory, and gives out copies on its device.

    Calibrations are made on the CPU wherever models run, so that a GPU changes no code and no scale.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._data: dict[str, Data] = {}
        self._models: OrderedDict[str, Model] = OrderedDict()

    def data(self, part: Part) -> Data:
        """The data of a cell."""
        return self._data.setdefault(_identity("data", part), part.make("data"))

    def model(self, cell: Cell) -> Model:
        """A copy, for the caller to change, of the cell's quantised model."""
        known = _identity("models", cell.model) + _identity("quantizers", cell.quantizer)
        known += _identity("data", cell.data)
        if known not in self._models:
            self._models[known] = self._build(cell)
        self._models.move_to_end(known)
        while len(self._models) > MODELS_KEPT:
            self._models.popitem(last=False)
        return copy.deepcopy(self._models[known]).to(self.device)

    def _build(self, cell: Cell) -> Model:
        model: Model = cell.model.make("models").build()
        quantizer: Quantizer = cell.quantizer.make("quantizers")
        reason = quantizer.unsupported(model)
        if reason is not None:
            raise Unsupported(f"{cell.quantizer.use}: {reason}")
        images = self.data(cell.data).source_images()[: quantizer.calibration_images]
        facts = {
            "weights": cell.model.fingerprint,
            "quantizer": cell.quantizer.identity("quantizers"),
            "data": cell.data.identity("data"),
            "images": len(images),
        }
        found = calibration.cached(
            cache.folder() / "calibrations",
            facts,
            lambda: quantizer.calibrate(copy.deepcopy(model), images, lambda *_: None),
        )
        quantizer.install(model, found)
        classes = self.data(cell.data).classes()
        if classes is not None:
            restrict_classes_(model, classes)
        return model


def _identity(group: str, part: Part) -> str:
    identity: dict[str, Any] = part.identity(group)
    return json.dumps(identity, sort_keys=True)
