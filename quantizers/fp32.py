"""No quantisation: the reference column."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tta_bench.api import Calibration, Model, Progress, Quantizer
from tta_bench_quantizers.packing import packed_bytes


@dataclass
class Fp32(Quantizer):
    """The float network as it is; the only one that backpropagates."""

    differentiable = True
    calibration_images = 0
    summary = "float32 weights and activations"
    bits: str = "FP32"

    def unsupported(self, model: Model) -> str | None:
        return None if self.bits == "FP32" else f"is FP32 only, not {self.bits}"

    def calibrate(self, model: Model, images: Tensor, progress: Progress) -> Calibration:
        return {}

    def apply(self, model: Model, calibration: Calibration) -> None:
        pass

    def packed_bytes(self, model: Model) -> int:
        return packed_bytes(model, {})
