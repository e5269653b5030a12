"""Which inputs of quantised layers no other module reads, so that they may be overwritten."""

from __future__ import annotations

from torch import nn

from tta_bench.api import NORM_TYPES
from tta_bench_quantizers._core.activations import ActivationQuantizer
from tta_bench_quantizers._core.attention import is_attention

# In a block: a norm, and the quantiser that is the only reader of its output.
BEHIND_NORMS = {"norm1": "attn.qkv.input", "norm2": "mlp.fc1.input"}


def allow_in_place_(net: nn.Module) -> None:
    """Let quantisers in timm's transformer blocks overwrite inputs that only they read.

    These are the attention maps and their product with v, the hidden layer of an MLP, and the outputs of
    norms.
    """
    modules = dict(net.named_modules())
    own = set()
    for name, module in modules.items():
        if is_attention(module):
            own |= {f"{name}.matmul2.a", f"{name}.proj.input"}
        elif hasattr(module, "fc1") and hasattr(module, "fc2"):
            own.add(f"{name}.fc2.input")
        for norm, place in BEHIND_NORMS.items():
            if isinstance(getattr(module, norm, None), NORM_TYPES):
                own.add(f"{name}.{place}")
    for name in own & modules.keys():
        if isinstance(quantiser := modules[name], ActivationQuantizer):
            quantiser.in_place = True
