"""A model: a network, the adapter through which methods see it, and the name it is known by.

The network is a starting point, small and untrained; put your own in its place, and give its weights.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load, save
from torch import Tensor, nn

from tta_bench.api import Model, ModelSource, Norm

CLASSES, SIDE, WIDTH, DEPTH = 10, 32, 32, 3
PROMPT_SIDE = 7


class Block(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTH)
        self.act1 = nn.ReLU()
        self.conv2 = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(WIDTH)
        self.act2 = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        branch = self.bn2(self.conv2(self.act1(self.bn1(self.conv1(x)))))
        return self.act2(x + branch)


class Net(nn.Module):
    """Its parts; the adapter runs them. Called as in timm's ResNets, they can be quantised by MQBench."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, WIDTH, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTH)
        self.act1 = nn.ReLU()
        self.maxpool = nn.Identity()
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.fc = nn.Linear(WIDTH, CLASSES)


class Adapter(Model):
    """What methods and quantizers see: logits = head(pool(blocks(enter(stem(x)))))."""

    # Presets of methods depend on the family. docs/first-model.md describes "resnet", "vit"
    # and "vim". With any other name, methods use their defaults, and `tta-bench plan` prints a warning.
    family = "resnet"
    tokens = False  # the hidden state is a feature map, not a sequence of tokens

    @property
    def blocks(self) -> Sequence[Any]:
        return self.net.blocks

    @property
    def classifier(self) -> nn.Linear:
        return self.net.fc

    def stem(self, x: Tensor, prompt: Tensor | None = None) -> Tensor:
        x = self.normalise(x)  # also quantises the input, if a quantizer requires it
        if prompt is not None:
            x = x + F.conv2d(x, prompt, padding=PROMPT_SIDE // 2)
        return self.net.conv1(x)

    def enter(self, embedded: Tensor) -> Tensor:
        return self.net.maxpool(self.net.act1(self.net.bn1(embedded)))

    def pool(self, hidden: Tensor) -> Tensor:
        return hidden.mean((2, 3))

    def head(self, z: Tensor) -> Tensor:
        return self.net.fc(z)

    def probe(self, block: int, hidden: Tensor) -> Tensor | None:
        return hidden.mean((2, 3))

    def stem_samples(self, embedded: Tensor) -> Tensor:
        return embedded.permute(0, 2, 3, 1).flatten(0, 2)

    def new_prompt(self, count: int, rng: torch.Generator) -> Tensor:
        std = (2 / (3 * PROMPT_SIDE**2)) ** 0.5
        return torch.randn(3, 3, PROMPT_SIDE, PROMPT_SIDE, generator=rng) * std

    def closes_branch(self, norm: Norm) -> bool:
        return norm.module is self.blocks[norm.block].bn2


@dataclass
class PluginClass(ModelSource):
    """Three residual blocks of 32 channels; untrained unless `weights` says where trained ones are."""

    weights: str = ""  # a .safetensors file of Net's state dict

    family = Adapter.family
    num_classes = CLASSES
    input_size = SIDE
    paths = ("weights",)  # a path is not part of the identity of results; the fingerprint is

    def skeleton(self) -> Model:
        half = (0.5, 0.5, 0.5)
        facts: dict[str, Any] = dict(num_classes=CLASSES, input_size=SIDE, mean=half, std=half)
        return Adapter(Net(), name="plugin-name", **facts).eval()

    def build(self) -> Model:
        model = self.skeleton()
        model.net.load_state_dict(load(self._content()))
        model.weights_sha256 = self.fingerprint()
        return model.eval().requires_grad_(False)

    def fingerprint(self) -> str:
        return "" if self.problems() else hashlib.sha256(self._content()).hexdigest()

    def problems(self) -> list[str]:
        if not self.weights or Path(self.weights).expanduser().is_file():
            return []
        return [f"{self.weights}: no such file. Let `weights` name a .safetensors file of this network."]

    def _content(self) -> bytes:
        """The weights as a file has them: yours, or random ones, always the same."""
        if self.weights:
            return Path(self.weights).expanduser().read_bytes()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return save(Net().state_dict())
