"""Models without weights: on the meta device, on fake tensors, and with nothing real but the head."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tta_bench.api import Model, ModelSource


def skeleton(source: ModelSource) -> Model:
    """The model on the meta device: shapes alone, made in no time.

    Not on fake tensors from the start: constructors may read numbers from tensors they place on the
    CPU (timm does, for drop path), and only the meta device leaves those their values.
    """
    with torch.device("meta"):
        return source.skeleton().eval().requires_grad_(False)


def fake_(model: Model, device: str = "cpu") -> None:
    """Give a model tensors on a device, fake where they are; views still share storages."""
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
    """Let passes through an nn.Sequential of blocks hold its input, as the network's own `forward` does.

    Published figures were measured on that `forward`, whose frame holds the embedded tokens until the
    last block is done. Our adapters step through the blocks and let them go: ViT-B needs 37 MiB less.
    """
    if isinstance(model.blocks, nn.Sequential):
        cls = type(model)
        model.__class__ = type(cls.__name__, (_HoldsFirstInput, cls), {})  # its copies hold, too


class _HoldsFirstInput(Model):
    """Mixed into an adapter's class: what a frame passes on lives as long as the frame."""

    def features(self, x: Tensor) -> Tensor:
        embedded = hidden = self.enter(self.stem(x))
        for block in self.blocks:
            hidden = block(hidden)
        del embedded
        return self.finish(hidden)

    def continue_from(self, hidden: Tensor, start: int = 0) -> tuple[list[Tensor], Tensor]:
        return super().continue_from(hidden, start)


def cut_backbone_(model: Model, width: int) -> None:
    """Make the head real, and features random: no image ever enters the network."""
    rng = torch.Generator().manual_seed(0)
    linear = model.classifier
    for name, tensor in list(linear.named_parameters()):
        real = torch.randn(tensor.shape, generator=rng)
        setattr(linear, name, nn.Parameter(real, requires_grad=False))
    model.head_weight, model.head_bias = linear.weight.detach(), linear.bias.detach()
    model.features = lambda x: torch.randn(len(x), width, generator=rng)  # type: ignore[method-assign]
