"""Calibration of one AdaLog site from its data."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tta_bench.api import Calibration
from tta_bench_quantizers._calibration.objectives import (
    LayerObjective,
    MatmulObjective,
    per_head,
    sample_indices,
)
from tta_bench_quantizers._calibration.site_data import SiteData
from tta_bench_quantizers._core.fake_quantization import affine, affine_codes
from tta_bench_quantizers._core.sites import named_fields
from tta_bench_quantizers._core.vit_sites import SiteKind
from tta_bench_quantizers.adalog.fpcs import search_affine, zero_points
from tta_bench_quantizers.adalog.reparametrize import Reparametrization, norm_before
from tta_bench_quantizers.adalog.scores import value_score
from tta_bench_quantizers.adalog.search import (
    ACTIVATION_FLOOR,
    AdaLogSearch,
    AffineInput,
    InputScheme,
    ShiftedLogInput,
    affordable,
    percentile_range,
    positive_range,
    search_layer,
    search_scores,
    search_values,
    search_weight,
)

PRODUCT_ROWS = 32  # per image: few images with many rows, since the right operand is not sampled
SAMPLE = 1 << 16  # values of a tensor from which percentiles are taken


def fit_product(search: AdaLogSearch, kind: SiteKind, data: SiteData) -> dict[str, Tensor]:
    """Fields of q·kᵀ or of attention·v."""
    product = _sampled_product(data, search.rows)
    if kind == "values":
        q, (b_scale, b_zero) = search_values(search, product)
        fields = {"a_q": q.squeeze(0).to(torch.int16)}
    else:
        (a_scale, a_zero), (b_scale, b_zero) = search_scores(search, product)
        fields = {"a_scale": per_head(a_scale), "a_zero": per_head(a_zero).to(torch.int16)}
    return fields | {"b_scale": per_head(b_scale), "b_zero": per_head(b_zero).to(torch.int16)}


def fit_layer(search: AdaLogSearch, net: nn.Module, site: str, kind: SiteKind, data: SiteData) -> Calibration:
    """Fields of a layer and, if a norm before it is reparametrised, of that norm."""
    layer = net.get_submodule(site)
    weight, x = layer.get_parameter("weight").flatten(1), data.a.flatten(0, -2)
    bias = None if layer.bias is None else layer.get_parameter("bias")
    calibration, extra = Calibration(), {}
    norm = norm_before(site)
    if norm is not None:
        change = _channelwise(search, x)
        x, (weight, bias) = change.rows(x), change.layer(weight, bias)
        extra = {"bias": bias, "column_scale": change.r}
        calibration |= named_fields(norm, change.norm(net.get_submodule(norm)))
    target = data.out.flatten(0, -2)
    objective = LayerObjective(weight, x, target if bias is None else target - bias)
    return calibration | named_fields(site, _fit(search, kind, objective, layer) | extra)


def _fit(
    search: AdaLogSearch, kind: SiteKind, objective: LayerObjective, layer: nn.Module
) -> dict[str, Tensor]:
    if kind == "conv":
        w, fields = search_weight(search, affordable(objective, search.rows)), {}
    else:
        w, (scale, other) = search_layer(search, _scheme(search, kind, objective), objective)
        companion = "a_q" if kind == "gelu" else "a_zero"
        fields = {"a_scale": scale.squeeze(0), companion: other.squeeze(0).to(torch.int16)}
    weight = objective.weight.view_as(layer.get_parameter("weight"))
    codes = affine_codes(weight, *w, search.bits.weight)
    return fields | {"codes": codes, "w_scale": w[0], "w_zero": w[1].to(torch.int16)}


def _scheme(search: AdaLogSearch, kind: SiteKind, objective: LayerObjective) -> InputScheme:
    """How this layer's input is quantised, with its range of scales."""
    x, bits = objective.x.flatten(), search.bits.activation
    values = x[sample_indices(len(x), SAMPLE)]
    if kind == "gelu":
        return ShiftedLogInput(positive_range(values, x.max()), bits)
    low, high = x.min().view(1), x.max().view(1)
    return AffineInput(percentile_range(values.unsqueeze(1), low, high, bits, ACTIVATION_FLOOR), bits)


def _channelwise(search: AdaLogSearch, x: Tensor) -> Reparametrization:
    """The reparametrisation that makes per-channel quantisers of x [T, C] per-tensor."""
    bits, part = search.bits.activation, x[sample_indices(len(x), search.rows)]
    scales = percentile_range(part, x.amin(0), x.amax(0), bits, ACTIVATION_FLOOR)
    score = value_score(part, lambda x, s, z: affine(x, s, z, bits))
    return Reparametrization.of(*search_affine(scales, zero_points(bits, 2**bits), score))


def _sampled_product(data: SiteData, rows: int) -> MatmulObjective:
    """A sample of images and rows, half of `rows` in all, as each row meets all keys or channels."""
    assert data.b is not None
    images = sample_indices(len(data.a), max(1, rows // (2 * PRODUCT_ROWS)))
    picks = sample_indices(data.a.shape[-2], PRODUCT_ROWS)
    a, out = (t[images][:, :, picks].contiguous() for t in (data.a, data.out))
    return MatmulObjective(a, data.b[images].contiguous(), out)
