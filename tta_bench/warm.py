"""What a worker keeps between tasks: data, and models as quantised and ready to be copied."""

from __future__ import annotations

import copy
import json
from collections import OrderedDict
from typing import Any

from tta_bench import accounts, calibration
from tta_bench.api import Data, Model, Quantizer
from tta_bench.data import cache
from tta_bench.errors import Unsupported
from tta_bench.grid import Cell, Part
from tta_bench.memory import MemoryReport, account
from tta_bench.models.restricted import restrict_classes_

MODELS_KEPT = 4


class Warm:
    """Builds on first use, keeps the last few."""

    def __init__(self) -> None:
        self._data: dict[str, Data] = {}
        self._models: OrderedDict[str, Model] = OrderedDict()
        self._memory: dict[str, MemoryReport] = {}

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
        return copy.deepcopy(self._models[known])

    def memory(self, cell: Cell) -> MemoryReport:
        """The byte counts of a cell's step, counted once for all seeds."""
        params = {key: value for key, value in cell.method.params.items() if key != "seed"}
        known = f"{cell.model} {cell.quantizer} {cell.method.use} {params} {cell.batch_size}"
        if known not in self._memory:
            model, quantizer = cell.model.make("models"), cell.quantizer.make("quantizers")
            method = cell.method.make("methods")
            self._memory[known] = accounts.kept(
                known,
                (type(model), type(quantizer), type(method)),
                lambda: account(model, quantizer, method, cell.batch_size),
            )
        return self._memory[known]

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
