"""Settings in which your own weights may differ from the default: ε of norm layers, and strides."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator
from torch import nn

from tta_bench.api import NORM_TYPES, Positive

CHANNELS = 3


def _of_channels(values: list[float] | None) -> list[float] | None:
    if values is not None and len(values) != CHANNELS:
        raise ValueError("it must be three numbers, for red, green and blue")
    return values


def _positive(values: list[float] | None) -> list[float] | None:
    if values is not None and min(values) <= 0:
        raise ValueError("its numbers must be greater than 0")
    return values


# For images in [0, 1]; None: as for the tag's weights.
Means = Annotated[list[float] | None, AfterValidator(_of_channels)]
Deviations = Annotated[list[float] | None, AfterValidator(_of_channels), AfterValidator(_positive)]
Eps = Positive | None
# Where a bottleneck block strides: v1.5 in its 3×3 convolution (torchvision, timm), v1 in its first 1×1
# convolution (the paper, Caffe, Keras). Weights of one load into the other and lose some accuracy.
Stride = Literal["v1.5", "v1"]


def set_eps_(net: nn.Module, eps: float) -> None:
    """Give every norm layer this ε."""
    for module in net.modules():
        if isinstance(module, NORM_TYPES):
            module.eps = eps


def has_bottlenecks(net: nn.Module) -> bool:
    """Whether a bottleneck block has a stride that can be moved."""
    return any(_strides_in_the_middle(block) for block in net.modules())


def use_v1_strides_(net: nn.Module) -> None:
    """Move the stride of every bottleneck block from its 3×3 convolution to its first one."""
    blocks: list[Any] = [block for block in net.modules() if _strides_in_the_middle(block)]
    if not blocks:
        raise ValueError("stride v1: no bottleneck block has a stride in its 3×3 convolution. Leave it out.")
    for block in blocks:
        block.conv1.stride, block.conv2.stride = block.conv2.stride, (1, 1)


def _strides_in_the_middle(block: Any) -> bool:
    convolutions = [getattr(block, f"conv{i}", None) for i in (1, 2, 3)]
    if not all(isinstance(each, nn.Conv2d) for each in convolutions):
        return False
    return block.conv2.stride != (1, 1) and block.conv1.kernel_size == (1, 1)
