"""PTQ4ViT (Yuan et al., ECCV 2022): twin uniform quantisation of vision transformers.

Two uniform ranges fit what softmax and GELU produce; scales are searched by the output error, weighed
with a gradient. `twin_mode="released"` computes what the authors' code computes: it adds the two
post-softmax branches instead of selecting one. `grad_mode="released"` takes their gradient, which is
rounding noise, as the network is compared with itself; `"fisher"` takes a real one.
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
from tta_bench_quantizers.activations import UniformActivation
from tta_bench_quantizers.attention import decompose_attention_
from tta_bench_quantizers.blockwise import GradMode, collect, gradient_loss
from tta_bench_quantizers.fake import LowBits, symmetric_codes
from tta_bench_quantizers.layers import QuantMatmul, quantized_layer
from tta_bench_quantizers.ownership import own_inputs_
from tta_bench_quantizers.packing import Packing, packed_bytes
from tta_bench_quantizers.ptq4vit_search import (
    Search,
    search_conv,
    search_layer,
    search_scores,
    search_values,
)
from tta_bench_quantizers.refusals import refuse_without_attention
from tta_bench_quantizers.site_data import SiteData
from tta_bench_quantizers.sites import named_fields, replace_module, site_fields
from tta_bench_quantizers.twin import TwinGelu, TwinMode, TwinSoftmax
from tta_bench_quantizers.vit_sites import Kind, head_count, vit_sites


@dataclass
class Ptq4Vit(BlockwiseQuantizer):
    """Twin uniform quantisation; `rows` tokens enter a site's search (0: all, as published)."""

    summary = "twin uniform softmax and GELU, per-head products, searched scales; transformers"
    bits: LowBits = "W8A8"
    twin_mode: TwinMode = "paper"
    grad_mode: GradMode = "fisher"
    candidates: Annotated[int, Ge(2)] = 100  # the first is a hundredth of the peak: alone, it clips all
    rounds: Count = 3
    rows: CountOrZero = 512

    def unsupported(self, model: Model) -> str | None:
        return refuse_without_attention(model)

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

    def _fit(self, kind: Kind, module: nn.Module, data: SiteData) -> dict[str, Tensor]:
        """Scales and codes of one site."""
        bits = Bits.parse(self.bits)
        search = Search(bits, self.candidates, self.rounds, self.twin_mode)
        if kind == "scores":
            return search_scores(search, data)
        if kind == "values":
            return search_values(search, data)
        if kind == "conv":
            fields = search_conv(search, data, module)
        else:
            granules = 3 if kind == "qkv" else 1
            fields = search_layer(search, data, module, granules, gelu=kind == "gelu")
        weight = module.get_parameter("weight").detach()
        return fields | {"codes": symmetric_codes(weight, fields["w_scale"], bits.weight)}

    def apply(self, model: Model, calibration: Calibration) -> None:
        decompose_attention_(model.net)
        for site, kind in vit_sites(model).items():
            old, fields = model.net.get_submodule(site), site_fields(calibration, site)
            replace_module(model.net, site, self._quantised(kind, old, fields))
        own_inputs_(model.net)

    def _quantised(self, kind: Kind, old: nn.Module, fields: dict[str, Tensor]) -> nn.Module:
        """The module that takes a site's place."""
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
