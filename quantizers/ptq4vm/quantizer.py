"""PTQ4VM (Cho et al., 2025) on Vision Mamba: smoothed, per-token static quantisation of its linears.

Six linear layers per block are quantised. Patch embedding, head, conv1d, the scan and its parameters, and the
norms stay in float. Ranges come from float inputs; JLSS then refines them block by block.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from tta_bench.api import Bits, BlockwiseQuantizer, Calibration, Count, MambaMixer, Model, Once, Progress
from tta_bench_quantizers._calibration.observers import BATCH, observing
from tta_bench_quantizers._core.fake_quantization import LowBits
from tta_bench_quantizers._core.layers import QuantLayer, quantized_layer
from tta_bench_quantizers._core.packing import Packing, packed_bytes
from tta_bench_quantizers._core.report import SiteReporting
from tta_bench_quantizers._core.sites import named_fields, replace_module, site_fields
from tta_bench_quantizers._engines.option import Engine, EngineOption
from tta_bench_quantizers.ptq4vm.fit import LinearFit, fit_linear, weight_codes
from tta_bench_quantizers.ptq4vm.jlss import learn_scales
from tta_bench_quantizers.ptq4vm.tokens import TokenActivation

LAYERS = ("in_proj", "x_proj", "x_proj_b", "dt_proj", "dt_proj_b", "out_proj")


@dataclass
class Ptq4Vm(EngineOption, SiteReporting, BlockwiseQuantizer):
    """Symmetric weights per row, affine activations per token, channels smoothed."""

    calibration_images = 256
    no_engine = "activations with a range for each token; `uniform` has one for each tensor"
    summary = "smoothed channels, per-row weights, static per-token activations; Vision Mamba"
    bits: LowBits = "W8A8"  # bit-widths of weights and activations
    jlss: bool = False  # learn the scales, as published: minutes on a GPU, hours on a CPU for Vim-S
    jlss_steps: Count = 100  # steps in which the scales are learnt
    engine: Engine = "simulated"  # who multiplies: float32 that simulates integers, or an integer engine

    def unsupported(self, model: Model) -> str | None:
        if not all(isinstance(getattr(block, "mixer", None), MambaMixer) for block in model.blocks):
            return f"quantises Vision Mamba, and {model.name} is a {model.family}"
        return super().unsupported(model)

    @torch.no_grad()
    def calibrate_blocks(self, model: Model, images: Tensor, progress: Progress, once: Once) -> Calibration:
        hidden = torch.cat([model.enter(model.stem(x)) for x in images.split(BATCH)])
        after_quantised = hidden  # the same tokens after quantised blocks; only JLSS uses them
        calibration: Calibration = {}
        for index, block in enumerate(model.blocks):
            seen, after = self._observe(block, hidden)
            fit = partial(self._calibrate_block, block, seen, hidden, after_quantised)
            fields = once(f"layers.{index}", fit)
            if self.jlss:
                after_quantised = after_quantised + mixer_output(
                    self._quantised(model, block, fields), after_quantised
                )
            calibration |= named_fields(f"layers.{index}.mixer", fields)
            hidden = after
            progress(index + 1, len(model.blocks))
        return calibration

    def _observe(self, block: nn.Module, hidden: Tensor) -> tuple[dict[str, list[Tensor]], Tensor]:
        """The inputs of a block's layers, by micro-batch, and the block's float output."""
        seen: dict[str, list[Tensor]] = {name: [] for name in LAYERS}
        mixer = block.get_submodule("mixer")
        with observing(mixer, LAYERS, lambda name, inputs, _: seen[name].append(inputs[0])):
            after = torch.cat([block(x) for x in hidden.split(BATCH)])
        return seen, after

    def _fit_block(self, block: nn.Module, seen: dict[str, list[Tensor]]) -> dict[str, LinearFit]:
        """Initial scales of a block's layers."""
        bits, mixer, fits = Bits.parse(self.bits), block.get_submodule("mixer"), {}
        for name in LAYERS:
            x = torch.cat(seen.pop(name), dim=1)  # [L, B, C]
            fits[name] = fit_linear(mixer.get_submodule(name), x, bits)  # type: ignore[arg-type]
        return fits

    def _calibrate_block(
        self, block: nn.Module, seen: dict[str, list[Tensor]], hidden: Tensor, after_quantised: Tensor
    ) -> Calibration:
        """Codes and scales of a block's layers, by layer and field."""
        fits = self._fit_block(block, seen)
        if self.jlss:
            fits = self._learn(block, fits, hidden, after_quantised)
        calibration: Calibration = {}
        for name, fit in fits.items():
            fields = self._fields(block.get_submodule(f"mixer.{name}"), fit)
            calibration |= named_fields(name, fields)
        return calibration

    def _learn(
        self, block: nn.Module, fits: dict[str, LinearFit], hidden: Tensor, after_quantised: Tensor
    ) -> dict[str, LinearFit]:
        """JLSS: match the quantised mixer after quantised blocks with the float mixer after float blocks."""
        tokens, mixer = block.get_submodule("norm")(after_quantised), block.get_submodule("mixer")
        return learn_scales(
            mixer, fits, Bits.parse(self.bits), tokens, mixer_output(block, hidden), self.jlss_steps
        )[0]

    def _quantised(self, model: Model, block: nn.Module, calibration: Calibration) -> nn.Module:
        block = deepcopy(block)
        for name in LAYERS:
            layer = block.get_submodule(f"mixer.{name}")
            new = self._layer(model, name, layer, site_fields(calibration, name))
            replace_module(block, f"mixer.{name}", new)
        return block

    def _fields(self, layer: nn.Module, fit: LinearFit) -> dict[str, Tensor]:
        codes = weight_codes(layer.get_parameter("weight"), fit, Bits.parse(self.bits).weight)
        return {"codes": codes, **vars(fit)}

    def _layer(self, model: Model, site: str, layer: nn.Module, fields: dict[str, Tensor]) -> QuantLayer:
        """The quantised layer; in layers that read the sequence backwards the class token is mirrored."""
        bits, sigma, a_scale = Bits.parse(self.bits), fields["sigma"], fields["a_scale"]
        cls_row = int(model.net.cls_index)  # type: ignore[arg-type]
        if site.endswith("_b"):
            cls_row = len(a_scale) - 1 - cls_row
        quantiser = TokenActivation(sigma, a_scale, fields["a_zero"], bits.activation, cls_row)
        codes, scale = fields["codes"], fields["w_scale"]
        return quantized_layer(layer, codes, scale, bits=bits.weight, input=quantiser, column_scale=sigma)

    def apply(self, model: Model, calibration: Calibration) -> None:
        for site in linear_sites(model):
            layer, fields = model.net.get_submodule(site), site_fields(calibration, site)
            replace_module(model.net, site, self._layer(model, site, layer, fields))

    def packed_bytes(self, model: Model) -> int:
        bits = Bits.parse(self.bits)
        tokens = model.net.get_parameter("pos_embed").shape[1]
        sites = {}
        for site in linear_sites(model):
            rows, columns = model.net.get_submodule(site).get_parameter("weight").shape
            scales = rows + columns + tokens  # of weights, of smoothing, of activations
            sites[site] = Packing(bits.weight, scales=scales, zero_bits=tokens * bits.activation)
        return packed_bytes(model, sites)


def linear_sites(model: Model) -> list[str]:
    """Names of the quantised layers: 144 on Vim-S."""
    return [f"layers.{i}.mixer.{name}" for i in range(len(model.blocks)) for name in LAYERS]


def mixer_output(block: nn.Module, hidden: Tensor) -> Tensor:
    """What a block adds to its input tokens."""
    norm, mixer = block.get_submodule("norm"), block.get_submodule("mixer")
    return torch.cat([mixer(norm(x)) for x in hidden.split(BATCH)])
