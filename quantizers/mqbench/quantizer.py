"""MQBench's academic scheme on ResNets (Li et al., 2021), as ZOA runs it.

Weights: affine, one scale per output channel. Activations: affine, one scale per tensor, on every tensor
that feeds a layer and for all of its readers. The edges (first convolution, classifier, their inputs)
have 8 bits at any width. BatchNorm is never folded, so that it stays adaptable. At 4 weight bits or fewer
AdaRound learns the rounding. The release takes 20 000 steps a layer; the default suits a CPU.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from tta_bench.api import Bits, BlockwiseQuantizer, Calibration, Count, Model, Once, Progress
from tta_bench_quantizers._calibration.adaround import short_schedule
from tta_bench_quantizers._calibration.observers import observe_inputs
from tta_bench_quantizers._core.activations import UniformActivation
from tta_bench_quantizers._core.fake_quantization import LowBits, affine_codes
from tta_bench_quantizers._core.layers import quantized_layer
from tta_bench_quantizers._core.packing import Packing, packed_bytes
from tta_bench_quantizers._core.report import SiteReporting
from tta_bench_quantizers._core.sites import head_site, layer_sites, named_fields, replace_module, site_fields
from tta_bench_quantizers._core.straight_through import DifferentiableActivation
from tta_bench_quantizers._engines import install
from tta_bench_quantizers._engines.integer_layers import InputGrid, grid_of
from tta_bench_quantizers._engines.option import Engine, EngineOption
from tta_bench_quantizers.mqbench.observer import activation_parameters, weight_parameters
from tta_bench_quantizers.mqbench.reconstruction import reconstruct_
from tta_bench_quantizers.mqbench.sites import INPUT, POOLED, readers, tensor_sites, unsupported_network

EDGE_BITS = 8
RANGE_IMAGES = 32


@dataclass
class MqBench(EngineOption, SiteReporting, BlockwiseQuantizer):
    """Affine weights and activations by MSE observers; AdaRound at low bits."""

    version = "2"
    summary = "affine per-channel weights, per-tensor activations, AdaRound at W4 and below; ResNets"
    bits: LowBits = "W8A8"  # bit-widths of weights and activations
    # Learn the rounding of weights; auto: at W4 and below.
    reconstruction: Literal["auto", "none", "adaround"] = "auto"
    recon_steps: Count = 300  # steps of the reconstruction for each block
    recon_images: Count = 32  # as released: its loader of 1024 images returns the same 32 repeatedly
    engine: Engine = "simulated"  # who multiplies: float32 that simulates integers, or an integer engine

    def __post_init__(self) -> None:
        if self.reconstructs:
            self.calibration_images = max(RANGE_IMAGES, self.recon_images)  # type: ignore[misc]

    @property
    def reconstructs(self) -> bool:
        """Whether AdaRound is used."""
        if self.reconstruction == "auto":
            return Bits.parse(self.bits).weight <= 4
        return self.reconstruction == "adaround"

    def title(self) -> str:
        return "" if self.engine == "simulated" else f"mqbench {self.engine}"

    def unsupported(self, model: Model) -> str | None:
        return (
            unsupported_network(model)
            or super().unsupported(model)
            or install.unsupported_network(self.engine, model)
            or self._unsupported_groups(model)
        )

    def _unsupported_groups(self, model: Model) -> str | None:
        """The reason if the network has grouped convolutions, whose groups have different input sums."""
        if self.engine != "torch-int8" or all(layer.groups == 1 for layer in _convolutions(model)):
            return None
        return (
            f"engine torch-int8 has no zero points of weights in grouped convolutions, and {model.name} "
            "has such convolutions"
        )

    def calibrate_blocks(self, model: Model, images: Tensor, progress: Progress, once: Once) -> Calibration:
        widths = self.weight_bits(model)
        total = len(widths) * (2 if self.reconstructs else 1)
        calibration = self._fit_activations(model, images[:RANGE_IMAGES])
        for done, (site, bits) in enumerate(widths.items(), 1):
            weight = model.net.get_submodule(site).get_parameter("weight")
            calibration |= named_fields(site, fit_weight(weight, bits))
            progress(done, total)
        if self.reconstructs:
            images = images[: self.recon_images]
            calibration |= self._reconstruct(model, images, calibration, progress, once)
        return calibration

    def _fit_activations(self, model: Model, images: Tensor) -> Calibration:
        sites, widths = tensor_sites(model), self.activation_bits(model)
        seen = observe_inputs(deepcopy(model), [site.reader for site in sites], images)
        calibration: Calibration = {}
        for site in sites:
            scale, zero = activation_parameters(seen[site.reader], widths[site.producer])
            calibration |= named_fields(site.producer, {"a_scale": scale, "a_zero": zero})
        return calibration

    def _reconstruct(
        self, model: Model, images: Tensor, calibration: Calibration, progress: Progress, once: Once
    ) -> Calibration:
        quantised = deepcopy(model)
        self._simulate_(quantised, calibration)
        total = 2 * len(self.weight_bits(model))
        done = iter(range(total // 2 + 1, total + 1))
        schedule = short_schedule(self.recon_steps)

        def on_unit() -> None:
            progress(next(done), total)

        return reconstruct_(quantised, deepcopy(model), images, schedule, on_unit, once)

    def apply(self, model: Model, calibration: Calibration) -> None:
        grids = self._simulate_(model, calibration)
        install.install_engine_(self.engine, model, grids)

    def integer_sites(self, quantised: Model) -> list[str]:
        return install.integer_sites_of(self.engine, quantised)

    def expected_integer_sites(self, model: Model) -> list[str]:
        return install.expected_integer_sites(self.engine, model, list(self.weight_bits(model)))

    def _simulate_(self, model: Model, calibration: Calibration) -> dict[str, InputGrid]:
        """Quantise a network; the grid of the input of each layer behind the first, if it has 8 bits."""
        sites, grids = tensor_sites(model), dict[str, InputGrid]()
        read = {site.producer: readers(model, site) for site in sites if site.producer != INPUT}
        for site, bits in self.weight_bits(model).items():
            fields = site_fields(calibration, site)
            layer = model.net.get_submodule(site)
            new = quantized_layer(layer, fields["codes"], fields["w_scale"], fields["w_zero"], bits=bits)
            replace_module(model.net, site, new)
        for producer, bits in self.activation_bits(model).items():
            fields = site_fields(calibration, producer)
            quantiser = DifferentiableActivation(fields["a_scale"], fields["a_zero"], bits)
            place_quantizer_(model, producer, quantiser)
            if (grid := grid_of(quantiser)) is not None:  # a pixel prompt is added to the network's input
                grids |= dict.fromkeys(read.get(producer, []), grid)
        return grids

    def packed_bytes(self, model: Model) -> int:
        sites = {}
        for site, bits in self.weight_bits(model).items():
            rows = len(model.net.get_submodule(site).get_parameter("weight"))
            sites[site] = Packing(bits, scales=rows, zero_bits=rows * bits)
        for producer, bits in self.activation_bits(model).items():
            sites[producer] = Packing(scales=1, zero_bits=bits)
        return packed_bytes(model, sites)

    def site_bits(self, model: Model) -> dict[str, Bits]:
        edge = Bits(EDGE_BITS, EDGE_BITS)
        return {"conv1": edge, head_site(model): edge}

    def weight_bits(self, model: Model) -> dict[str, int]:
        """Bits by layer; 54 layers on ResNet-50."""
        inner, edges = Bits.parse(self.bits).weight, ("conv1", head_site(model))
        return {site: EDGE_BITS if site in edges else inner for site in layer_sites(model)}

    def activation_bits(self, model: Model) -> dict[str, int]:
        """Bits of each tensor, by the module that makes it; 50 on ResNet-50."""
        inner, edges = Bits.parse(self.bits).activation, (INPUT, POOLED)
        sites = tensor_sites(model)
        return {s.producer: EDGE_BITS if s.producer in edges else inner for s in sites}


def _convolutions(model: Model) -> list[nn.Conv2d]:
    return [layer for layer in layer_sites(model).values() if isinstance(layer, nn.Conv2d)]


def fit_weight(weight: Tensor, bits: int) -> dict[str, Tensor]:
    """Codes, scales and zero points of one layer, rounded to nearest."""
    scale, zero = weight_parameters(weight, bits)
    return {"codes": affine_codes(weight, scale, zero, bits), "w_scale": scale, "w_zero": zero}


def place_quantizer_(model: Model, producer: str, quantiser: UniformActivation) -> None:
    """Quantise a tensor for all its readers; norm layers keep their names."""
    if producer == INPUT:
        model.input_quantizer = quantiser  # a pixel prompt is added after it
    elif producer == POOLED:
        # Inside the classifier: a method may change the features before it, and they must be quantised.
        model.classifier.input = quantiser
    else:
        module = model.net.get_submodule(producer)
        if isinstance(module, nn.ReLU):
            module, quantiser.fuses_relu = nn.Identity(), True
        quantiser.in_place = True  # no other module reads the float tensor
        replace_module(model.net, producer, nn.Sequential(module, quantiser))
