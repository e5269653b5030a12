"""Post-training quantizers: a calibration from images, and a quantised model from a calibration."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from torch import Tensor

from tta_bench.api.model import Model
from tta_bench.api.plugin import Plugin
from tta_bench.api.sites import SiteReport, changed_layers, site_report
from tta_bench.errors import Unsupported
from tta_bench.plugins.bits import Bits, BitWidth

Calibration = dict[str, Tensor]
Progress = Callable[[int, int], None]  # (done, total)
Once = Callable[[str, Callable[[], Calibration]], Calibration]  # (block's name, how to calibrate it)


class Quantizer(Plugin):
    """Post-training quantisation in two steps: `calibrate` returns plain tensors, `apply` installs them.

    A new calibration and one read from disk go through the same `apply`, so both give the same bits.
    """

    differentiable: ClassVar[bool] = False
    calibration_images: ClassVar[int] = 32
    after_calibration: ClassVar[tuple[str, ...]] = ()  # fields that a calibration does not depend on
    cpu_only: bool = False  # the quantised model runs on no other device
    norms_in_graph: bool = False  # it reads parameters of norm layers, which cannot be replaced or hooked
    engine_package: str = ""  # besides PyTorch, the package whose kernels multiply the integers
    summary: ClassVar[str] = ""
    bits: BitWidth = "W8A8"

    def unsupported(self, model: Model) -> str | None:
        """Why this scheme does not fit this model; None if it does."""
        return None

    @abstractmethod
    def calibrate(self, model: Model, images: Tensor, progress: Progress) -> Calibration:
        """Codes, scales and zero points by site name, from clean images."""

    @abstractmethod
    def apply(self, model: Model, calibration: Calibration) -> None:
        """Quantise the model in place."""

    @abstractmethod
    def packed_bytes(self, model: Model) -> int:
        """Bytes that an unquantised `model` will need: codes, scales, zero points and float tensors."""

    def site_bits(self, model: Model) -> dict[str, Bits]:
        """Bit-widths of layers by their names in `model.net`; a layer that is not named has `bits`."""
        return {}

    def report(self, quantised: Model, floating: Model, images: Tensor) -> list[SiteReport]:
        """What quantisation did to each site, for `tta-bench quantize`; both models stay as they are.

        By default: every layer that was changed, with its bits and the error of its weight and output. A
        scheme that knows more of its sites adds scales and clip rates.
        """
        named, widths = self.site_bits(floating), Bits.parse(self.bits)
        rows = []
        for row in site_report(quantised, floating, images, changed_layers(quantised, floating)):
            bits = named.get(row.site, widths)
            rows.append(replace(row, weight_bits=bits.weight, activation_bits=bits.activation))
        return rows

    def simulated(self) -> Quantizer | None:
        """The same scheme in float32, which defines what an integer engine has to compute; None without one.

        The harness compares both on the calibration images before it runs a cell.
        """
        return None

    def integer_sites(self, quantised: Model) -> list[str]:
        """The sites whose products the quantised model really computes in integers."""
        return []

    def expected_integer_sites(self, model: Model) -> list[str]:
        """The sites of an unquantised `model` that the engine has to compute in integers.

        A cell fails if `integer_sites` lacks one of them.
        """
        return []

    def unsupported_export(self, model: Model) -> str | None:
        """Why `network_files` cannot write this model, quantised or not; None if it can."""
        return f"{type(self).__name__} has no form as ONNX files"

    def network_files(self, model: Model) -> dict[str, bytes]:
        """The quantised model as files for other programs, by name; raises Unsupported if it cannot."""
        raise Unsupported(f"{self.unsupported_export(model)}")

    def calibration_set(self, source_images: Tensor) -> Tensor:
        """The clean images for calibration; raises Unsupported if they are needed and the data has none."""
        if self.calibration_images and not len(source_images):
            raise Unsupported("calibration needs clean images, and the data has none")
        return source_images[: self.calibration_images]

    def quantize(self, model: Model, images: Tensor, progress: Progress = lambda *_: None) -> Model:
        """Calibrate and apply."""
        return self.install(model, self.calibrate(model, images, progress))

    def install(self, model: Model, calibration: Calibration) -> Model:
        """Apply a calibration and set the model's facts."""
        self.apply(model, calibration)
        self.describe_(model)
        return model.eval().requires_grad_(False)

    def describe_(self, model: Model) -> None:
        """Set the facts of a quantised model on which methods decide whether they can run on it."""
        model.bits = Bits.parse(self.bits)
        model.differentiable = self.differentiable
        model.norms_in_graph = self.norms_in_graph


class BlockwiseQuantizer(Quantizer):
    """A quantizer that calibrates block by block, so that a stopped calibration can continue.

    `once(name, calibrate_block)` returns the tensors of a block: the saved ones of a stopped calibration, or
    the result of `calibrate_block()`, which it saves. So the tensors of a block may depend on the model, the
    images, the parameters and earlier blocks, but not on a random generator that blocks share.
    """

    def calibrate(self, model: Model, images: Tensor, progress: Progress) -> Calibration:
        """Codes, scales and zero points by site name, without saving finished blocks."""
        return self.calibrate_blocks(model, images, progress, lambda _, calibrate_block: calibrate_block())

    @abstractmethod
    def calibrate_blocks(self, model: Model, images: Tensor, progress: Progress, once: Once) -> Calibration:
        """Codes, scales and zero points by site name, each block calibrated through `once`."""
