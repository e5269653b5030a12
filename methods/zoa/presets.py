"""ZOA's settings by family and bits: from Appendix D, for τ of ResNets from the released code, or tuned."""

from __future__ import annotations

from typing import Any

from tta_bench.api import Bits, Target

FAMILIES: dict[str, dict[str, Any]] = {
    "vit": {"c": 0.02, "c_alpha": 0.05, "lam": 30.0, "tau": 0.1},
    # Its early feature maps are the largest: keeping one would take a quarter of the peak memory.
    "resnet": {"c": 0.01, "c_alpha": 0.05, "lam": 1.0, "tau": 0.2, "share_prefix": False},
    "vim": {"c": 0.03, "c_alpha": 0.03, "lam": 30.0, "tau": 0.1},
}
# (least bits, learning rate), most bits first. FP32 uses the rate of W8A8; a bit-width that the paper does
# not give uses the rate of the next lower one that it gives.
RATES: dict[str, list[tuple[int, float]]] = {
    "vit": [(8, 5e-4), (6, 2e-4), (0, 5e-5)],
    "resnet": [(8, 1e-4), (0, 5e-5)],
    "vim": [(0, 5e-4)],
}
# For the embedded network: chosen from 2e-4 to 5e-3 on the four held-out corruptions (docs/methods.md).
TUNED: dict[str, dict[str, Any]] = {"vit-micro": {"lr": 1e-3}}


def settings(target: Target) -> dict[str, Any]:
    """The settings for a target; none for families that the paper does not have."""
    if target.family not in FAMILIES:
        return {}
    bits = Bits.parse(target.bits)
    fewest = min(bits.weight, bits.activation)
    lr = next(rate for least, rate in RATES[target.family] if fewest >= least)
    return {"lr": lr, **FAMILIES[target.family], **TUNED.get(target.model, {})}
