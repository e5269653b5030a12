"""ResNeXt-29 for images of 32 pixels (Xie et al., 2017), and its adapter.

Modules have the names of RobustBench's checkpoints.
"""

from __future__ import annotations

from torch import Tensor, nn

from tta_bench.api import Norm
from tta_bench.models.resnet import ResNetModel

STEM_WIDTH = 64
GROUPS, GROUP_WIDTH = 4, 32  # of the 3×3 convolutions in the first stage
BLOCKS = 3  # of a stage
EXPANSION = 4  # of the first stage's 64 channels: each later stage has twice as many


class GroupedBottleneck(nn.Module):
    """1×1, grouped 3×3 and 1×1 convolution, and a shortcut."""

    def __init__(self, width_in: int, inner: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv_reduce = nn.Conv2d(width_in, inner, 1, bias=False)
        self.bn_reduce = nn.BatchNorm2d(inner)
        self.act_reduce = nn.ReLU(inplace=True)
        self.conv_conv = nn.Conv2d(inner, inner, 3, stride, padding=1, groups=GROUPS, bias=False)
        self.bn = nn.BatchNorm2d(inner)
        self.act = nn.ReLU(inplace=True)
        self.conv_expand = nn.Conv2d(inner, width, 1, bias=False)
        self.bn_expand = nn.BatchNorm2d(width)
        self.act_expand = nn.ReLU(inplace=True)
        self.downsample = None
        if stride > 1 or width_in != width:
            shortcut = nn.Conv2d(width_in, width, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        branch = self.act_reduce(self.bn_reduce(self.conv_reduce(x)))
        branch = self.act(self.bn(self.conv_conv(branch)))
        return self.act_expand(shortcut + self.bn_expand(self.conv_expand(branch)))


class CifarResNeXt(nn.Module):
    """The parts of ResNeXt-29 with 4 groups of 32 channels; the adapter runs them."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.conv_1_3x3 = nn.Conv2d(3, STEM_WIDTH, 3, padding=1, bias=False)
        self.bn_1 = nn.BatchNorm2d(STEM_WIDTH)
        self.act_1 = nn.ReLU(inplace=True)
        width_in = STEM_WIDTH
        for stage, factor in enumerate((1, 2, 4), 1):
            inner, width = GROUPS * GROUP_WIDTH * factor, EXPANSION * STEM_WIDTH * factor
            first = GroupedBottleneck(width_in, inner, width, stride=1 if stage == 1 else 2)
            others = (GroupedBottleneck(width, inner, width, stride=1) for _ in range(BLOCKS - 1))
            setattr(self, f"stage_{stage}", nn.Sequential(first, *others))
            width_in = width
        self.classifier = nn.Linear(width_in, num_classes)

    @property
    def conv1(self) -> nn.Module:
        """The first convolution, as `ResNetModel` calls it."""
        return self.conv_1_3x3

    @property
    def fc(self) -> nn.Module:
        """The classifier, as `ResNetModel` calls it."""
        return self.classifier


class ResNeXtModel(ResNetModel):
    """Layer features: the pooled outputs of the three stages."""

    @property
    def stages(self) -> list[nn.Sequential]:
        """stage_1 … stage_3."""
        return [self.net.stage_1, self.net.stage_2, self.net.stage_3]

    def enter(self, embedded: Tensor) -> Tensor:
        return self.net.act_1(self.net.bn_1(embedded))

    def pool(self, hidden: Tensor) -> Tensor:
        return hidden.mean((2, 3))

    def closes_branch(self, norm: Norm) -> bool:
        """The branch's last norm and that of the shortcut."""
        block = self.blocks[norm.block]
        return norm.module is not block.bn_reduce and norm.module is not block.bn
