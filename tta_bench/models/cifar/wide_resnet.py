"""Wide residual networks for images of 32 pixels (Zagoruyko and Komodakis, 2016), and their adapter.

Modules have the names of RobustBench's checkpoints. Blocks are pre-activated: BatchNorm and ReLU come before
each convolution, so that a norm and a ReLU are left after the last block.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from tta_bench.api import Norm
from tta_bench.models.resnet import ResNetModel

STEM_WIDTH = 16
CONVOLUTIONS = 6  # of one block in each of the three stages


class PreActivationBlock(nn.Module):
    """Two 3×3 convolutions; a shortcut that changes the width reads the first activation."""

    def __init__(self, width_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(width_in)
        self.relu1 = nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(width_in, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu2 = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.convShortcut = None if width_in == width else nn.Conv2d(width_in, width, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        activated = self.relu1(self.bn1(x))
        shortcut = x if self.convShortcut is None else self.convShortcut(activated)
        return shortcut + self.conv2(self.relu2(self.bn2(self.conv1(activated))))


class WideResNet(nn.Module):
    """The parts of WRN-`depth`-`widening`; the adapter runs them."""

    def __init__(self, depth: int, widening: int, num_classes: int) -> None:
        super().__init__()
        blocks = (depth - 4) // CONVOLUTIONS
        widths = [STEM_WIDTH, *(STEM_WIDTH * widening * factor for factor in (1, 2, 4))]
        self.conv1 = nn.Conv2d(3, STEM_WIDTH, 3, padding=1, bias=False)
        for stage, (width_in, width) in enumerate(pairwise(widths), 1):
            first = PreActivationBlock(width_in, width, stride=1 if stage == 1 else 2)
            others = (PreActivationBlock(width, width, stride=1) for _ in range(blocks - 1))
            setattr(self, f"block{stage}", nn.ModuleDict({"layer": nn.Sequential(first, *others)}))
        self.bn1 = nn.BatchNorm2d(widths[-1])
        self.relu = nn.ReLU(inplace=True)
        self.fc = nn.Linear(widths[-1], num_classes)


class WideResNetModel(ResNetModel):
    """Layer features: the pooled outputs of two stages; after the last stage z, which the last norm reads."""

    @property
    def stages(self) -> list[nn.Sequential]:
        """The blocks of the three stages."""
        return [self.net.block1["layer"], self.net.block2["layer"], self.net.block3["layer"]]

    @property
    def blocks(self) -> Sequence[Any]:
        return [block for stage in self.stages for block in stage]

    def enter(self, embedded: Tensor) -> Tensor:
        return embedded

    def pool(self, hidden: Tensor) -> Tensor:
        return self.net.relu(self.net.bn1(hidden)).mean((2, 3))

    def probe(self, block: int, hidden: Tensor) -> Tensor | None:
        last = block == len(self.blocks) - 1
        return self.pool(hidden) if last else super().probe(block, hidden)

    def closes_branch(self, norm: Norm) -> bool:
        """No norm does: branches end with a convolution."""
        return False
