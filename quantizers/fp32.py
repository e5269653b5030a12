"""No quantisation: the float reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from tta_bench.api import BitRange, Calibration, Model, Progress, Quantizer
from tta_bench_quantizers._core.packing import packed_bytes


@dataclass
class Fp32(Quantizer):
    """The unchanged float network; the only quantizer whose models have gradients."""

    differentiable = True
    calibration_images = 0
    summary = "float32 weights and activations"
    bits: Annotated[str, BitRange((32, 32), (32, 32))] = "FP32"  # bit-widths of weights and activations

    def calibrate(self, model: Model, images: Tensor, progress: Progress) -> Calibration:
        return {}

    def apply(self, model: Model, calibration: Calibration) -> None:
        pass

    def packed_bytes(self, model: Model) -> int:
        return packed_bytes(model, {})
