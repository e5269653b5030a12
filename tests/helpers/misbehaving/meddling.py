"""Methods, and a quantizer, that change what is not theirs: features, networks, settings of the process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from tta_bench.api import Calibration, Method, Model, Source
from tta_bench_quantizers.uniform import UniformQuantizer

Where = Literal["features", "classifier", "hook", "train", "source images", "norm"]
Setting = Literal["threads", "dtype", "precision", "grad", "global hook", "numpy", "denormals"]


@dataclass
class Meddles(Method):
    """Reads features, and changes everything within its reach."""

    where: Where = "features"
    consumes = "features"
    memory = "none"

    def setup(self, model: Model, source: Source) -> None:
        self.model = model
        classifier = model.classifier
        if self.where == "classifier":
            classifier.weight.data.neg_()
            model.head_weight.neg_()
        if self.where == "hook":
            classifier.register_forward_hook(lambda module, inputs, output: output.flip(1))
        if self.where == "train":
            model.train()
            for module in model.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.reset_running_stats()
        if self.where == "source images":
            source.images.zero_()
        if self.where == "norm":
            for norm in model.norms():
                norm.module.weight.data.zero_()

    def step(self, x: Tensor) -> Tensor:
        if self.where == "features":
            x.sub_(5)
        return self.model.head(x)

    def reset(self) -> None:
        pass


@dataclass
class ChangesSettings(Method):
    """Leaves a setting of the whole process changed, in `setup` or in `step`."""

    setting: Setting = "threads"
    at: Literal["setup", "step"] = "setup"
    memory = "none"

    def setup(self, model: Model, source: Source) -> None:
        self.model = model
        if self.at == "setup":
            self.change()

    def step(self, x: Tensor) -> Tensor:
        if self.at == "step":
            self.change()
        return self.model(x)

    def reset(self) -> None:
        pass

    def change(self) -> None:
        if self.setting == "threads":
            torch.set_num_threads(torch.get_num_threads() + 1)
        elif self.setting == "dtype":
            torch.set_default_dtype(torch.float64)
        elif self.setting == "precision":
            torch.set_float32_matmul_precision("medium")
        elif self.setting == "grad":
            torch.autograd.set_detect_anomaly(True)
        elif self.setting == "global hook":
            nn.modules.module.register_module_forward_hook(lambda module, inputs, output: output * 1.5)
        elif self.setting == "numpy":
            np.seterr(all="raise")
        else:
            torch.set_flush_denormal(True)


@dataclass
class PatchesTorch(Method):
    """Replaces a function of PyTorch for the whole process, which no guard looks at."""

    memory = "none"

    def setup(self, model: Model, source: Source) -> None:
        self.model = model
        linear = nn.functional.linear
        nn.functional.linear = lambda x, weight, bias=None: linear(x, weight, bias).roll(1, -1)

    def step(self, x: Tensor) -> Tensor:
        return self.model(x)

    def reset(self) -> None:
        pass


@dataclass
class Noisy(Method):
    """Has no memory, and adds noise from the global generator."""

    memory = "none"

    def step(self, x: Tensor) -> Tensor:
        return self.model(x) + 4 * torch.randn(len(x), self.model.num_classes)

    def reset(self) -> None:
        pass


@dataclass
class LoosensPrecision(UniformQuantizer):
    """A quantizer that leaves the process with other matrix products."""

    def calibrate(self, model: Model, images: Tensor, *rest: object) -> Calibration:
        torch.set_float32_matmul_precision("medium")
        return super().calibrate(model, images, *rest)  # type: ignore[arg-type]
