"""AdaLog (Wu et al., ECCV 2024): logarithmic quantisers of adaptive base for transformers at 3–4 bits.

Attention maps and GELU outputs get AdaLog quantisers, everything else affine ones; the inputs of qkv
and fc1 get per-tensor quantisers by reparametrising the norm before them. So the norms' γ and β differ from
the float model's: statistics and updates must come from the quantised model.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from tta_bench.api import Bits, BlockwiseQuantizer, Calibration, Count, Ge, Model, Once, Progress
from tta_bench_quantizers._calibration.adaround import short_schedule
from tta_bench_quantizers._calibration.blockwise import collect
from tta_bench_quantizers._core.activations import UniformActivation
from tta_bench_quantizers._core.attention import decompose_attention_, unsupported_without_attention
from tta_bench_quantizers._core.fake_quantization import LowBits, dequantize
from tta_bench_quantizers._core.in_place import allow_in_place_
from tta_bench_quantizers._core.layers import QuantMatmul, quantized_layer
from tta_bench_quantizers._core.packing import Packing, packed_bytes
from tta_bench_quantizers._core.report import SiteReporting
from tta_bench_quantizers._core.sites import named_fields, replace_module, site_fields
from tta_bench_quantizers._core.twin import GELU_DEPTH
from tta_bench_quantizers._core.vit_sites import SiteKind, head_count, vit_sites
from tta_bench_quantizers._engines.option import Engine, EngineOption
from tta_bench_quantizers.adalog.fit import fit_layer, fit_product
from tta_bench_quantizers.adalog.logarithmic import AdaLogActivation
from tta_bench_quantizers.adalog.reconstruction import reconstruct, unit_count
from tta_bench_quantizers.adalog.reparametrize import norm_before, set_norm_, unsupported_norms
from tta_bench_quantizers.adalog.search import AdaLogSearch

SEARCH_IMAGES = 32
BASE_BITS = 8  # q ≤ 137


@dataclass
class AdaLog(EngineOption, SiteReporting, BlockwiseQuantizer):
    """AdaLog; a site's search uses `rows` tokens where the exact Gram form would cost more."""

    version = "2"
    no_engine = "products of logarithmic codes; `uniform` has uniform ones"
    summary = "adaptive-base logarithmic softmax and GELU, reparametrised norms; transformers"
    bits: LowBits = "W4A4"  # bit-widths of weights and activations
    rounds: Count = 3  # alternations of the search over weights and activations
    rows: Annotated[int, Ge(2)] = 256  # tokens that a search uses
    # Learn the rounding of the weights of each block, or round to the nearest.
    reconstruction: Literal["none", "adaround"] = "none"
    recon_steps: Count = 1000  # steps of the reconstruction for each block
    recon_images: Count = 1024  # images of the reconstruction
    engine: Engine = "simulated"  # who multiplies: float32 that simulates integers, or an integer engine

    def __post_init__(self) -> None:
        if self.reconstruction != "none":
            self.calibration_images = max(SEARCH_IMAGES, self.recon_images)  # type: ignore[misc]

    def unsupported(self, model: Model) -> str | None:
        return unsupported_without_attention(model) or unsupported_norms(model) or super().unsupported(model)

    def calibrate_blocks(self, model: Model, images: Tensor, progress: Progress, once: Once) -> Calibration:
        learns = self.reconstruction == "adaround"
        total = len(vit_sites(model)) + learns * unit_count(model)
        done = count(1)

        def on_block() -> None:
            progress(next(done), total)

        calibration = self._search(model, images[:SEARCH_IMAGES], on_block, once)
        if learns:
            quantised, floating = deepcopy(model), deepcopy(model)
            self.apply(quantised, calibration)
            images, schedule = images[: self.recon_images], short_schedule(self.recon_steps)
            calibration |= reconstruct(quantised, floating, images, schedule, on_block, once)
        return calibration

    @torch.no_grad()
    def _search(self, model: Model, images: Tensor, on_site: Callable[[], None], once: Once) -> Calibration:
        """All quantisers' parameters, and codes rounded to nearest."""
        model = deepcopy(model)
        decompose_attention_(model.net)
        sites, calibration = vit_sites(model), Calibration()
        search = AdaLogSearch(Bits.parse(self.bits), self.rounds, self.rows)
        for group in collect(model, sites, images, rows_per_image=0, loss=None):
            for site, data in group.items():
                if sites[site] in ("scores", "values"):
                    fields = once(site, partial(fit_product, search, sites[site], data))
                    calibration |= named_fields(site, fields)
                else:
                    fit = partial(fit_layer, search, model.net, site, sites[site], data)
                    calibration |= once(site, fit)
                on_site()
        return calibration

    def apply(self, model: Model, calibration: Calibration) -> None:
        decompose_attention_(model.net)
        for site, kind in vit_sites(model).items():
            old, fields = model.net.get_submodule(site), site_fields(calibration, site)
            norm = norm_before(site)
            if norm is not None:
                set_norm_(model.net.get_submodule(norm), **site_fields(calibration, norm))
            build = self._product if kind in ("scores", "values") else self._layer
            replace_module(model.net, site, build(kind, old, fields))
        allow_in_place_(model.net)

    def _product(self, kind: SiteKind, old: nn.Module, fields: dict[str, Tensor]) -> nn.Module:
        bits = Bits.parse(self.bits).activation
        right = UniformActivation(fields["b_scale"], fields["b_zero"], bits)
        if kind == "values":
            scale = fields.get("a_scale", torch.tensor(1.0))  # reconstruction learns it
            return QuantMatmul(AdaLogActivation(scale, fields["a_q"], bits), right)
        return QuantMatmul(UniformActivation(fields["a_scale"], fields["a_zero"], bits), right)

    def _layer(self, kind: SiteKind, old: nn.Module, fields: dict[str, Tensor]) -> nn.Module:
        bits = Bits.parse(self.bits)
        weight = [fields[name] for name in ("codes", "w_scale", "w_zero")]
        inside: nn.Module | None = None
        bias = fields.get("bias")
        if kind == "gelu":
            inside = AdaLogActivation(fields["a_scale"], fields["a_q"], bits.activation, GELU_DEPTH)
            bias = _unshifted(old.bias, dequantize(*weight))
        elif kind != "conv":
            inside = UniformActivation(fields["a_scale"], fields["a_zero"], bits.activation)
        return quantized_layer(
            old,
            *weight,
            bits=bits.weight,
            input=inside,
            bias=bias,
            column_scale=fields.get("column_scale"),
        )

    def packed_bytes(self, model: Model) -> int:
        bits = Bits.parse(self.bits)
        sites = {}
        for site, kind in vit_sites(model).items():
            if kind in ("scores", "values"):
                learnt = kind == "values" and self.reconstruction != "none"  # otherwise softmax's scale is 1
                sites[site] = _packed_product(kind, head_count(model, site), bits.activation, learnt)
                continue
            rows = len(model.net.get_submodule(site).get_parameter("weight"))
            of_input = {"conv": 0, "gelu": BASE_BITS}.get(kind, bits.activation)
            zero_bits = rows * bits.weight + of_input
            sites[site] = Packing(bits.weight, rows + (kind != "conv"), zero_bits)
        return packed_bytes(model, sites)


def _packed_product(kind: SiteKind, heads: int, bits: int, learnt_scale: bool) -> Packing:
    if kind == "scores":
        return Packing(scales=2 * heads, zero_bits=2 * heads * bits)
    return Packing(scales=heads + learnt_scale, zero_bits=heads * bits + BASE_BITS)


def _unshifted(bias: Tensor | nn.Module | None, weight: Tensor) -> Tensor:
    """The bias that subtracts GELU's shift again: bias − shift·rowsum(Ŵ)."""
    shift = GELU_DEPTH * weight.sum(1)
    return bias.detach() - shift if isinstance(bias, Tensor) else -shift
