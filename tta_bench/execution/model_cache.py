"""Data and quantised models that a process keeps between tasks."""

from __future__ import annotations

import copy
import gc
from collections import OrderedDict

import torch
from torch import Tensor

from tta_bench.api import Data, Model, Quantizer
from tta_bench.api.agreement import Agreement, checked_agreement
from tta_bench.errors import Unsupported
from tta_bench.execution import calibration
from tta_bench.execution.process import resident_bytes
from tta_bench.grid import Cell
from tta_bench.models.micro import VitMicro
from tta_bench.models.restricted import restrict_classes_
from tta_bench.plugins.identity import PluginIdentity

MODELS_KEPT = 4


class ModelCache:
    """Builds models on first use, keeps the last few in main memory, and copies them to its device.

    Calibrations are always made on the CPU, so that integer codes and scales do not depend on the device.
    The main memory that each network adds is measured; cells that share a network share the figure, too.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._data: dict[str, Data] = {}
        self._models: OrderedDict[str, Model] = OrderedDict()
        self._agreements: dict[str, Agreement | None] = {}
        self._added_bytes: dict[str, int] = {}

    def data(self, identity: PluginIdentity) -> Data:
        """The data of a cell."""
        if identity.digest not in self._data:
            self._data[identity.digest] = identity.make()
        return self._data[identity.digest]

    def source_images(self, identity: PluginIdentity) -> Tensor:
        """A copy of the clean images of a cell's data."""
        return self.data(identity).source_images().clone()

    def model(self, cell: Cell) -> Model:
        """A copy of the cell's quantised model."""
        known = _known(cell)
        if known not in self._models:
            self._models[known] = self._measured(cell)
        self._models.move_to_end(known)
        while len(self._models) > MODELS_KEPT:
            self._models.popitem(last=False)
        return copy.deepcopy(self._models[known]).to(self.device)

    def agreement(self, cell: Cell) -> Agreement | None:
        """How well the engine of the cell's quantizer agrees with its simulation; None for a simulation."""
        return self._agreements[_known(cell)]

    def added_bytes(self, cell: Cell) -> int | None:
        """Main memory that the cell's network added to this process; None where it cannot be read."""
        return self._added_bytes.get(_known(cell))

    def _measured(self, cell: Cell) -> Model:
        self.data(cell.data).source_images()  # read before, so that they do not count
        _load_libraries(cell)
        before = _settled_bytes()
        model = self._build(cell)
        after = _settled_bytes()
        if before is not None and after is not None:
            self._added_bytes[_known(cell)] = max(0, after - before)
        return model

    def _build(self, cell: Cell) -> Model:
        model: Model = cell.model.make().build()
        if model.weights_sha256 and model.weights_sha256 != cell.model.fingerprint:
            raise RuntimeError(f"the weights of {cell.model.label} have changed since the run started")
        quantizer: Quantizer = cell.quantizer.make()
        reason = quantizer.unsupported(model)
        if reason is None and quantizer.cpu_only and self.device.type != "cpu":
            reason = f"computes on the CPU only, and the device is {self.device}; set run.device: cpu"
        if reason is not None:
            raise Unsupported(f"{cell.quantizer.use}: {reason}")
        images = quantizer.calibration_set(self.source_images(cell.data))
        found = calibration.of(cell.model, cell.quantizer, model, images)
        floating = copy.deepcopy(model) if quantizer.simulated() else model
        quantizer.install(model, found)
        self._agreements[_known(cell)] = checked_agreement(quantizer, model, floating, found, images)
        classes = self.data(cell.data).classes()
        if classes is not None:
            restrict_classes_(model, classes)
        return model


def _known(cell: Cell) -> str:
    """What a quantised model is made from."""
    return "/".join(plugin.digest for plugin in (cell.model, cell.quantizer, cell.data))


def _load_libraries(cell: Cell) -> None:
    """Import what the first network of a process needs besides its own memory."""
    small = VitMicro().build()
    small.net(torch.zeros(1, 3, small.input_size, small.input_size))
    quantizer: Quantizer = cell.quantizer.make()
    quantizer.unsupported(small)


def _settled_bytes() -> int | None:
    """Main memory of this process without recent garbage; a full search takes long in a large process."""
    gc.collect(1)
    return resident_bytes()
