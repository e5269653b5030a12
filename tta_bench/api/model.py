"""The common interface of all classifiers, and the plugins that build them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from tta_bench.api.plugin import Plugin
from tta_bench.plugins.bits import Bits

NORM_TYPES = (nn.LayerNorm, nn.BatchNorm2d, nn.GroupNorm, nn.RMSNorm)


@dataclass(frozen=True)
class Target:
    """What a preset may depend on: model name, its family, and the bit-widths (`FP32`, `W8A8`, …)."""

    model: str
    family: str
    bits: str


@dataclass(frozen=True)
class View:
    """Resizing and cropping of a picture: its shorter side to `resize`, then the central `size` pixels."""

    size: int
    resize: int  # 0: crop without resizing
    interpolation: str = "bilinear"


@dataclass(frozen=True)
class Norm:
    """A normalisation layer and the number of its block: -1 is the stem, len(blocks) the last norm."""

    name: str
    block: int
    module: nn.Module


@dataclass
class Passes:
    """Numbers of images in forward and backward passes of a model so far.

    A backward pass counts when its gradient reaches the features. A method whose loss may depend on inner
    layers alone adds the images of such a pass to `backward_images`.
    """

    forward_images: int = 0
    backward_images: int = 0


class Model(nn.Module):
    """The common interface of all classifiers: a method is written once for all architectures.

        logits = head(finish(blocks(enter(stem(x)))))

    `stem` is everything up to the first statistics that a method may need (patch tokens with positions, or
    the first convolution's output); `enter` is the rest before the first block. `stem` must read images only
    through `normalise`, where quantizers quantise the network's input.
    """

    family: ClassVar[str]  # one of `tta_bench.api.families.FAMILIES`, or another name, without presets
    tokens: ClassVar[bool] = True  # the hidden state is a sequence of tokens, not a feature map
    net: Any  # the network, whose attributes only the adapter uses
    mean: Tensor
    std: Tensor
    head_weight: Tensor
    head_bias: Tensor

    def __init__(
        self,
        net: nn.Module,
        *,
        name: str,
        num_classes: int,
        input_size: int,
        mean: Sequence[float],
        std: Sequence[float],
        weights_sha256: str = "",
    ) -> None:
        super().__init__()
        self.net = net
        self.name = name
        self.num_classes = num_classes
        self.input_size = input_size
        self.weights_sha256 = weights_sha256
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1), persistent=False)
        self.bits = Bits()
        self.differentiable = True
        self.norms_in_graph = False  # an engine computes the norm layers and only reads their parameters
        self.passes = Passes()
        # Quantizers place the quantiser of the network's input here; `normalise` applies it.
        self.input_quantizer: nn.Module = nn.Identity()
        # The float classifier is kept after quantisation: T3A starts from its rows.
        self.register_buffer("head_weight", self.classifier.weight.detach(), persistent=False)
        self.register_buffer("head_bias", self.classifier.bias.detach(), persistent=False)

    # What an architecture defines --------------------------------------------------------------

    @property
    @abstractmethod
    def blocks(self) -> Sequence[Any]:
        """The residual blocks in order."""

    @abstractmethod
    def stem(self, x: Tensor, prompt: Tensor | None = None) -> Tensor:
        """Embedding of images in [0, 1]; `prompt` is inserted (tokens) or added (pixels)."""

    @abstractmethod
    def enter(self, embedded: Tensor) -> Tensor:
        """The hidden state that the first block reads."""

    @abstractmethod
    def pool(self, hidden: Tensor) -> Tensor:
        """Features z [B, d] from the last block's output; call `finish`, which also counts."""

    @property
    @abstractmethod
    def classifier(self) -> nn.Linear:
        """The last linear layer."""

    @abstractmethod
    def probe(self, block: int, hidden: Tensor) -> Tensor | None:
        """The layer feature [B, c] read after `block`, or None where the architecture reads none."""

    @abstractmethod
    def stem_samples(self, embedded: Tensor) -> Tensor:
        """The stem's output as [samples, channels], class token excluded."""

    @abstractmethod
    def new_prompt(self, count: int, rng: torch.Generator) -> Tensor:
        """A random prompt: `count` tokens, or the one pixel kernel of a convolutional network."""

    # What all share ----------------------------------------------------------------------------

    @property
    def device(self) -> torch.device:
        """The model's device; a method creates its tensors there."""
        return self.mean.device

    def normalise(self, x: Tensor) -> Tensor:
        """The first layer's input: images minus `mean`, divided by `std`, and quantised.

        A pixel prompt is added afterwards.
        """
        return self.input_quantizer((x - self.mean) / self.std)

    def finish(self, hidden: Tensor) -> Tensor:
        """Features z of a completed pass. Every pass ends here, so passes are counted here."""
        z = self.pool(hidden)
        self.passes.forward_images += len(z)
        if z.requires_grad:
            z.register_hook(self._count_backward)
        return z

    def _count_backward(self, grad: Tensor) -> None:
        self.passes.backward_images += len(grad)

    def features(self, x: Tensor) -> Tensor:
        """Features z [B, d], the input of the head."""
        hidden = self.enter(self.stem(x))
        for block in self.blocks:
            hidden = block(hidden)
        return self.finish(hidden)

    def head(self, z: Tensor) -> Tensor:
        """Logits from features."""
        return self.classifier(z)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.head(self.features(x))

    def continue_from(self, hidden: Tensor, start: int = 0) -> tuple[list[Tensor], Tensor]:
        """Run blocks[start:]; return the layer features of these blocks, and z."""
        probes = []
        for index, block in enumerate(self.blocks[start:], start):
            hidden = block(hidden)
            probe = self.probe(index, hidden)
            if probe is not None:
                probes.append(probe)
        return probes, self.finish(hidden)

    def norms(self) -> list[Norm]:
        """All normalisation layers with affine parameters, in the order of the network's modules."""
        owner = {id(m): i for i, block in enumerate(self.blocks) for m in block.modules()}
        found, outside = [], -1
        for name, module in self.net.named_modules():
            if id(module) in owner:
                outside = len(self.blocks)
            if isinstance(module, NORM_TYPES) and module.weight is not None:
                found.append(Norm(name, owner.get(id(module), outside), module))
        return found

    def stage_sizes(self) -> list[int]:
        """Number of blocks in each stage; a network of constant width is one stage."""
        return [len(self.blocks)]

    def closes_branch(self, norm: Norm) -> bool:
        """Whether a norm's output goes straight into the residual sum; pre-norm blocks have none."""
        return False

    def batch_norms(self) -> list[nn.BatchNorm2d]:
        """All BatchNorm2d layers."""
        return [m for m in self.net.modules() if isinstance(m, nn.BatchNorm2d)]

    def use_batch_statistics(self) -> None:
        """Normalise by the current batch in every BatchNorm2d, in train and eval mode."""
        for norm in self.batch_norms():
            norm.track_running_stats = False
            norm.running_mean = norm.running_var = norm.num_batches_tracked = None

    def target(self) -> Target:
        """What presets depend on."""
        return Target(self.name, self.family, str(self.bits))


class ModelSource(Plugin):
    """A named model: the dataclass that the `tta_bench.models` entry points refer to."""

    # The crop for which the weights were evaluated; None: images must have the input size.
    view: View | None = None
    summary: ClassVar[str] = ""

    @property
    @abstractmethod
    def family(self) -> str:
        """One of `tta_bench.api.families.FAMILIES`, which presets of methods depend on, or another name."""

    @property
    @abstractmethod
    def num_classes(self) -> int:
        """Number of logits."""

    @property
    @abstractmethod
    def input_size(self) -> int:
        """Side of the input images in pixels."""

    @abstractmethod
    def build(self) -> Model:
        """The model with its weights, in eval mode, without gradients."""

    @abstractmethod
    def fingerprint(self) -> str:
        """SHA-256 of the weights; part of every cell's key."""

    @abstractmethod
    def skeleton(self) -> Model:
        """The model with arbitrary weights: for shapes and byte counts, also under fake tensors."""

    def fetch(self) -> None:
        """Download the files of `build` before `fingerprint` is called; `problems` reports failures."""

    def problems(self) -> list[str]:
        """Why this model cannot be built here: problem and remedy, one sentence each."""
        return []
