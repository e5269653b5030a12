"""Why a scheme does not fit: reasons in one sentence, told before any image is read."""

from __future__ import annotations

from torch import nn

from tta_bench.api import Model
from tta_bench_quantizers.attention import is_attention
from tta_bench_quantizers.reparametrize import norm_before
from tta_bench_quantizers.sites import layer_sites


def refuse_without_attention(model: Model) -> str | None:
    """Why a transformer scheme cannot quantise this model."""
    missing = []
    if not any(is_attention(m) for m in model.net.modules()):
        missing.append("attention")
    if not any(isinstance(m, nn.GELU) for m in model.net.modules()):
        missing.append("GELU")
    if not missing:
        return None
    what = "none" if len(missing) == 2 else f"no {missing[0]}"
    return f"quantises attention and GELU sites, and {model.name} has {what}"


def refuse_other_norms(model: Model) -> str | None:
    """Why the norms before qkv and fc1 cannot be reparametrised."""
    for site in layer_sites(model):
        name = norm_before(site)
        if name is None:
            continue
        parent = model.net.get_submodule(site.rpartition(".")[0])
        norm = dict(model.net.named_modules()).get(name)
        affine = isinstance(norm, nn.LayerNorm) and norm.weight is not None and norm.bias is not None
        if not affine or getattr(parent, "gate", None) is not None:
            return f"needs an affine LayerNorm that feeds {site} alone, and {model.name} has none"
    return None
