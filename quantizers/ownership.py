"""Which inputs of quantised layers nobody else reads, so that they may be overwritten."""

from __future__ import annotations

from torch import nn

from tta_bench.api import NORM_TYPES
from tta_bench_quantizers.activations import ActivationQuantizer
from tta_bench_quantizers.attention import is_attention

# In a block: a norm, and the quantiser that alone reads what it returns.
BEHIND_NORMS = {"norm1": "attn.qkv.input", "norm2": "mlp.fc1.input"}


def own_inputs_(net: nn.Module) -> None:
    """Tell the quantisers in a transformer's blocks, as timm builds them, which tensors are theirs.

    Attention shows its maps and its result to nobody else, nor does an MLP its hidden layer; what a norm
    returns is new.
    """
    modules = dict(net.named_modules())
    private = set()
    for name, module in modules.items():
        if is_attention(module):
            private |= {f"{name}.matmul2.a", f"{name}.proj.input"}
        elif hasattr(module, "fc1") and hasattr(module, "fc2"):
            private.add(f"{name}.fc2.input")
        for norm, place in BEHIND_NORMS.items():
            if isinstance(getattr(module, norm, None), NORM_TYPES):
                private.add(f"{name}.{place}")
    for name in private & modules.keys():
        if isinstance(quantiser := modules[name], ActivationQuantizer):
            quantiser.owns_input = True
