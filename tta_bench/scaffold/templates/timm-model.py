"""A network of timm's with weights of your own: how it is made, how it was trained, how methods see it.

The network is a starting point, small and untrained; put your own in its place, and give its weights.
"""

from dataclasses import dataclass
from typing import Any

import timm
from torch import nn

from tta_bench.api import Model, ResNetModel, TimmModel, View

CLASSES, SIDE = 10, 32
SCALE = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}  # of the training; images come in [0, 1]


class Adapter(ResNetModel):
    """What methods and quantizers see. A vision transformer of timm's has VitModel in place of ResNetModel.

    Override what your network does otherwise: `stem`, `enter`, `pool`, `head`, `probe`.
    """


@dataclass
class PluginClass(TimmModel):
    """A narrow ResNet-26; random weights unless `weights` says where trained ones are."""

    weights: str = "random"  # or the path of a state dict: .safetensors, or .pth with nothing but tensors

    # Presets of methods depend on the family. docs/first-model.md describes "resnet", "vit"
    # and "vim". With any other name, methods use their defaults, and `tta-bench plan` prints a warning.
    family = "resnet"
    name = "plugin-name"
    num_classes = CLASSES
    input_size = SIDE
    view = View(SIDE, resize=SIDE)  # pictures: the shorter side to `resize` pixels, then the centre
    scale = SCALE
    eps = 1e-5  # of the norm layers; Keras has 1.001e-5, TensorFlow's official ResNets 1e-3
    stride = "v1.5"  # of bottleneck blocks: in the 3×3 convolution; "v1" (Caffe, Keras): in the first 1×1

    def network(self) -> nn.Module:
        return timm.create_model("resnet26", num_classes=CLASSES, channels=(16, 32, 64, 128))

    def adapter(self, net: nn.Module, **facts: Any) -> Model:
        return Adapter(net, **facts)
