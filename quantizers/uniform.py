"""Plain uniform quantisation: a baseline without search that fits every architecture.

Weights: symmetric, one scale per output row or channel. Activations: affine, one scale per tensor, on
the input of every Linear and Conv2d. Everything else (attention products, scans, depthwise conv1d,
norms, residual sums) stays in float.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

from torch import Tensor, nn

from tta_bench.api import Bits, Calibration, Model, Progress
from tta_bench_quantizers._calibration.histogram import ValueHistogram
from tta_bench_quantizers._calibration.observers import observe_inputs
from tta_bench_quantizers._calibration.scales import Rule, affine_scale, symmetric_row_scales
from tta_bench_quantizers._core.activations import UniformActivation
from tta_bench_quantizers._core.fake_quantization import LowBits, LowWidth, symmetric_codes
from tta_bench_quantizers._core.in_place import allow_in_place_
from tta_bench_quantizers._core.layers import quantized_layer
from tta_bench_quantizers._core.packing import Packing, packed_bytes
from tta_bench_quantizers._core.report import SiteReporting
from tta_bench_quantizers._core.sites import (
    head_site,
    layer_sites,
    named_fields,
    replace_module,
    site_fields,
)
from tta_bench_quantizers._engines.install import (
    expected_integer_sites,
    install_engine_,
    integer_sites_of,
    network_files_of,
    unsupported_export_of,
    unsupported_network,
)
from tta_bench_quantizers._engines.option import Engine, EngineOption


@dataclass
class UniformQuantizer(EngineOption, SiteReporting):
    """Uniform quantisation; the first layer and the head get at least `edge_bits`.

    `engine` says who multiplies: float32 (`simulated`), or integers on an inference engine.
    """

    version = "2"
    summary = "per-channel symmetric weights, per-tensor affine activations; any network"
    bits: LowBits = "W8A8"  # bit-widths of weights and activations
    scale: Rule = "mse"  # how the range of a tensor is chosen
    edge_bits: LowWidth = 8  # least bits of the first layer and the head
    engine: Engine = "simulated"  # who multiplies: float32 that simulates integers, or an integer engine

    def title(self) -> str:
        return "" if self.engine == "simulated" else f"uniform {self.engine}"

    def calibrate(self, model: Model, images: Tensor, progress: Progress) -> Calibration:
        widths = self.site_bits(model)
        seen = observe_inputs(deepcopy(model), widths, images)
        calibration: Calibration = {}
        for done, (site, bits) in enumerate(widths.items(), 1):
            layer = model.net.get_submodule(site)
            calibration |= named_fields(site, self._fit(layer, seen[site], bits))
            progress(done, len(widths))
        return calibration

    def _fit(self, layer: nn.Module, seen: ValueHistogram, bits: Bits) -> dict[str, Tensor]:
        """Codes and scales of one layer."""
        weight = layer.get_parameter("weight")
        w_scale = symmetric_row_scales(weight, bits.weight, self.scale)
        a_scale, a_zero = affine_scale(seen, bits.activation, self.scale)
        codes = symmetric_codes(weight, w_scale, bits.weight)
        return {"codes": codes, "w_scale": w_scale, "a_scale": a_scale, "a_zero": a_zero}

    def apply(self, model: Model, calibration: Calibration) -> None:
        for position, (site, bits) in enumerate(self.site_bits(model).items()):
            fields = site_fields(calibration, site)
            quantiser = UniformActivation(fields["a_scale"], fields["a_zero"], bits.activation)
            inside: nn.Module | None = quantiser
            if position == 0 and not model.tokens:
                model.input_quantizer, inside = quantiser, None  # pixel prompts are added after it
            layer = model.net.get_submodule(site)
            new = quantized_layer(layer, fields["codes"], fields["w_scale"], bits=bits.weight, input=inside)
            replace_module(model.net, site, new)
        allow_in_place_(model.net)
        install_engine_(self.engine, model)

    def unsupported(self, model: Model) -> str | None:
        return super().unsupported(model) or unsupported_network(self.engine, model)

    def integer_sites(self, quantised: Model) -> list[str]:
        return integer_sites_of(self.engine, quantised)

    def expected_integer_sites(self, model: Model) -> list[str]:
        return expected_integer_sites(self.engine, model, list(self.site_bits(model)))

    def unsupported_export(self, model: Model) -> str | None:
        return unsupported_export_of(model)

    def network_files(self, model: Model) -> dict[str, bytes]:
        if self.unsupported_export(model) is not None:
            return super().network_files(model)  # raises it
        return network_files_of(model)

    def packed_bytes(self, model: Model) -> int:
        sites = {}
        for site, bits in self.site_bits(model).items():
            rows = len(model.net.get_submodule(site).get_parameter("weight"))
            sites[site] = Packing(bits.weight, scales=rows + 1, zero_bits=bits.activation)
        return packed_bytes(model, sites)

    def site_bits(self, model: Model) -> dict[str, Bits]:
        """Bit-widths by site; the first layer and the head have at least `edge_bits`."""
        sites = list(layer_sites(model))
        bits = Bits.parse(self.bits)
        wide = Bits(max(bits.weight, self.edge_bits), max(bits.activation, self.edge_bits))
        edges = (sites[0], head_site(model))
        return {site: wide if site in edges else bits for site in sites}
