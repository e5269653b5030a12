"""PTQ4ViT (Yuan et al., ECCV 2022): twin uniform quantisation of vision transformers.

Outputs of softmax and GELU have two uniform ranges; scales are searched by the output error, weighted with a
gradient. `twin_mode="released"` computes what the authors' code computes: it adds the two post-softmax
branches instead of selecting one. `grad_mode="released"` uses their gradient, which is rounding noise, since
the network is compared with itself; `"fisher"` uses a real gradient.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from torch import Tensor, nn

from tta_bench.api import (
    Bits,
    BlockwiseQuantizer,
    Calibration,
    Count,
    CountOrZero,
    Ge,
    Model,
    Once,
    Progress,
)
from tta_bench_quantizers._calibration.blockwise import GradMode, collect, gradient_loss
from tta_bench_quantizers._calibration.site_data import SiteData
from tta_bench_quantizers._core.activations import UniformActivation
from tta_bench_quantizers._core.attention import decompose_attention_, unsupported_without_attention
from tta_bench_quantizers._core.fake_quantization import LowBits, symmetric_codes
from tta_bench_quantizers._core.in_place import allow_in_place_
from tta_bench_quantizers._core.layers import QuantMatmul, quantized_layer
from tta_bench_quantizers._core.packing import Packing, packed_bytes
from tta_bench_quantizers._core.report import SiteReporting
from tta_bench_quantizers._core.sites import named_fields, replace_module, site_fields
from tta_bench_quantizers._core.twin import TwinGelu, TwinMode, TwinSoftmax
from tta_bench_quantizers._core.vit_sites import SiteKind, head_count, vit_sites
from tta_bench_quantizers._engines.option import Engine, EngineOption
from tta_bench_quantizers.ptq4vit.search import (
    Ptq4VitSearch,
    search_conv,
    search_layer,
    search_scores,
    search_values,
)


@dataclass
class Ptq4Vit(EngineOption, SiteReporting, BlockwiseQuantizer):
    """Twin uniform quantisation; a site's search uses `rows` tokens (0: all, as published)."""

    no_engine = "products of two ranges (softmax and GELU); `uniform` has one range for each tensor"
    summary = "twin uniform softmax and GELU, per-head products, searched scales; transformers"
    bits: LowBits = "W8A8"  # bit-widths of weights and activations
    twin_mode: TwinMode = "paper"  # how twin ranges are chosen
    grad_mode: GradMode = "fisher"  # how the output errors of a layer are weighted in the search
    # Scales that a search tries; a single one would be a hundredth of the peak and clip everything.
    candidates: Annotated[int, Ge(2)] = 100
    rounds: Count = 3  # alternations of the search over weights and activations
    rows: CountOrZero = 512  # tokens that a search uses; 0: all, as published
    engine: Engine = "simulated"  # who multiplies: float32 that simulates integers, or an integer engine

    def unsupported(self, model: Model) -> str | None:
        return unsupported_without_attention(model) or super().unsupported(model)

    def calibrate_blocks(self, model: Model, images: Tensor, progress: Progress, once: Once) -> Calibration:
        model = deepcopy(model).requires_grad_(False)
        decompose_attention_(model.net)
        sites, calibration, done = vit_sites(model), Calibration(), 0
        rows_per_image = -(-self.rows // len(images))
        groups = collect(model, sites, images, rows_per_image, gradient_loss(self.grad_mode))
        for site, data in (pair for group in groups for pair in group.items()):
            fields = once(site, partial(self._fit, sites[site], model.net.get_submodule(site), data))
            calibration |= named_fields(site, fields)
            progress(done := done + 1, len(sites))
        return calibration

    def _fit(self, kind: SiteKind, module: nn.Module, data: SiteData) -> dict[str, Tensor]:
        """Scales and codes of one site."""
        bits = Bits.parse(self.bits)
        search = Ptq4VitSearch(bits, self.candidates, self.rounds, self.twin_mode)
        if kind == "scores":
            return search_scores(search, data)
        if kind == "values":
            return search_values(search, data)
        if kind == "conv":
            fields = search_conv(search, data, module)
        else:
            groups = 3 if kind == "qkv" else 1
            fields = search_layer(search, data, module, groups, gelu=kind == "gelu")
        weight = module.get_parameter("weight").detach()
        return fields | {"codes": symmetric_codes(weight, fields["w_scale"], bits.weight)}

    def apply(self, model: Model, calibration: Calibration) -> None:
        decompose_attention_(model.net)
        for site, kind in vit_sites(model).items():
            old, fields = model.net.get_submodule(site), site_fields(calibration, site)
            replace_module(model.net, site, self._quantised(kind, old, fields))
        allow_in_place_(model.net)

    def _quantised(self, kind: SiteKind, old: nn.Module, fields: dict[str, Tensor]) -> nn.Module:
        """The module that replaces a site."""
        bits = Bits.parse(self.bits)
        uniform = {
            side: UniformActivation(fields[f"{side}_scale"], None, bits.activation)
            for side in ("a", "b")
            if f"{side}_scale" in fields
        }
        if kind == "scores":
            return QuantMatmul(uniform["a"], uniform["b"])
        if kind == "values":
            return QuantMatmul(TwinSoftmax(fields["split"], bits.activation, self.twin_mode), uniform["b"])
        inside: nn.Module | None = uniform.get("a")
        if kind == "gelu":
            inside = TwinGelu(fields["a_scale"], bits.activation)
        codes, scale = fields["codes"], fields["w_scale"]
        return quantized_layer(old, codes, scale, bits=bits.weight, input=inside)

    def packed_bytes(self, model: Model) -> int:
        bits = Bits.parse(self.bits)
        sites = {}
        for site, kind in vit_sites(model).items():
            if kind in ("scores", "values"):
                heads = head_count(model, site)
                sites[site] = Packing(scales=2 * heads if kind == "scores" else 1 + heads)
            else:
                rows = len(model.net.get_submodule(site).get_parameter("weight"))
                scales = {"conv": rows, "qkv": 4}.get(kind, 2)
                sites[site] = Packing(bits.weight, scales)
        return packed_bytes(model, sites)
