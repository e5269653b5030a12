"""Models without weights: on the meta device, on fake tensors, or with only the head on real tensors."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tta_bench.api import Model, ModelSource


def skeleton(source: ModelSource) -> Model:
    """The model on the meta device: shapes without weights, built at once.

    Fake tensors cannot be used here: constructors may read numbers from tensors that they place on the CPU
    (timm does, for drop path), and only the meta device keeps the values of those.
    """
    with torch.device("meta"):
        return source.skeleton().eval().requires_grad_(False)


def fake_(model: Model, device: str = "cpu") -> None:
    """Move a model's tensors from the meta device to `device`; views still share storages.

    Under `fake_tensors`, the new tensors are fake.
    """
    bases: dict[int, Tensor] = {}

    def replace(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in bases:
            size = storage.nbytes() // tensor.element_size()
            bases[storage._cdata] = torch.empty(size, dtype=tensor.dtype, device=device)
        base = bases[storage._cdata]
        return base.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    model._apply(replace)


def hold_first_input_(model: Model) -> None:
    """Keep the input of an nn.Sequential of blocks alive during a pass, as the network's own `forward` does.

    Published figures were measured on that `forward`, whose frame holds the embedded tokens until the last
    block is done. Our adapters call the blocks one by one and free the tokens: ViT-B needs 37 MiB less.
    """
    if isinstance(model.blocks, nn.Sequential):
        cls = type(model)  # replaced, so that copies of the model have the new class too
        model.__class__ = type(cls.__name__, (_HoldsFirstInput, cls), {})


class _HoldsFirstInput(Model):
    """Mixed into an adapter's class: the first block's input lives until the pass is done."""

    def features(self, x: Tensor) -> Tensor:
        embedded = hidden = self.enter(self.stem(x))
        for block in self.blocks:
            hidden = block(hidden)
        del embedded
        return self.finish(hidden)

    def continue_from(self, hidden: Tensor, start: int = 0) -> tuple[list[Tensor], Tensor]:
        return super().continue_from(hidden, start)


def cut_backbone_(model: Model, width: int) -> None:
    """Give the head real random weights, and return random features for any image."""
    rng = torch.Generator().manual_seed(0)
    linear = model.classifier
    for name, tensor in list(linear.named_parameters()):
        real = torch.randn(tensor.shape, generator=rng)
        setattr(linear, name, nn.Parameter(real, requires_grad=False))
    model.head_weight, model.head_bias = linear.weight.detach(), linear.bias.detach()
    model.features = lambda x: torch.randn(len(x), width, generator=rng)  # type: ignore[method-assign]
