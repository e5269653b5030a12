"""CIFAR classifiers of continual test-time adaptation, with RobustBench's checkpoints.

Their authors publish the files on a host without a stable address, so `auto` looks for a file in
`$TTA_BENCH_DATA/weights` that has a known SHA-256, and downloads nothing.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from tta_bench.api import Model
from tta_bench.data.location import VARIABLE, locate
from tta_bench.models.checkpointed import CheckpointedModel
from tta_bench.models.cifar.resnext import CifarResNeXt, ResNeXtModel
from tta_bench.models.cifar.wide_resnet import WideResNet, WideResNetModel
from tta_bench.models.variants import Deviations, Means
from tta_bench.models.weights import BadWeights, verified

# Keys that some files have: a block that no forward pass reads, and the normalisation, which `scale` has.
UNREAD = ("sub_block1.", "mu", "sigma")
UNCHANGED = dict(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
HALF = dict(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))


@dataclass(frozen=True)
class RobustBenchFile:
    """A checkpoint by its place in RobustBench's folder of models; no SHA-256 if none is known.

    Without one, `auto` is refused, and references compare weights from a path, with a note.
    """

    path: str
    sha256: str = ""


@dataclass
class CifarModel(CheckpointedModel):
    """Base: 10 or 100 classes at 32 pixels; a subclass lists its published files by number of classes."""

    family = "resnet"
    num_classes = 10  # replaced by `classes`
    input_size = 32
    published: ClassVar[Mapping[int, RobustBenchFile]]

    weights: str = "auto"
    classes: Literal[10, 100] = 10  # of CIFAR-10 or CIFAR-100
    mean: Means = None  # of the channels, for the normalisation of images; null: those of the weights
    std: Deviations = None  # standard deviations of the channels; null: those of the weights

    def __post_init__(self) -> None:
        self.num_classes = self.classes

    @property
    @abstractmethod
    def head(self) -> str:
        """The key of the classifier's weight."""

    def renamed(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        return {key: tensor for key, tensor in state.items() if not key.startswith(UNREAD)}

    def remedy(self, state: Mapping[str, Tensor]) -> str:
        rows = len(state[self.head]) if self.head in state else self.classes
        if rows != self.classes and rows in (10, 100):
            return f"Its classifier has {rows} classes: give `classes: {rows}`."
        return super().remedy(state)

    def _local(self) -> Path | None:
        folder, file = locate("", "weights"), self.published.get(self.classes)
        place = folder / file.path if folder and file and file.sha256 else None
        return place if place and place.is_file() else None

    def _fetched(self) -> Path:
        own = "give `weights: PATH`, or `weights: random` to try things out"
        file = self.published.get(self.classes)
        if file is None:
            raise BadWeights(f"{self.name} has no published weights for {self.classes} classes: {own}.")
        if not file.sha256:
            raise BadWeights(
                f"no SHA-256 of RobustBench's {file.path} is known, so `auto` could not check the file. "
                f"Get it from RobustBench's model zoo and {own}."
            )
        if place := self._local():
            return verified(place, file.sha256)
        raise BadWeights(
            f"${VARIABLE}/weights/{file.path} is missing. Get this file from RobustBench's model zoo and put "
            f"it there, or {own}."
        )


@dataclass
class Wrn2810(CifarModel):
    """WideResNet-28-10 with RobustBench's Standard weights for CIFAR-10; images are not normalised."""

    name = "wrn-28-10"
    scale = UNCHANGED
    head = "fc.weight"
    published = {  # noqa: RUF012
        10: RobustBenchFile(
            "cifar10/corruptions/Standard.pt",
            "6ed1c75dad63e8ebdbef365020dd1a7eee5e79cf8a1438bd3bdc3b9c7aab3d44",
        )
    }

    def network(self) -> nn.Module:
        return WideResNet(28, 10, self.classes)

    def adapter(self, net: nn.Module, **facts: Any) -> Model:
        return WideResNetModel(net, **facts)


@dataclass
class Wrn402(CifarModel):
    """WideResNet-40-2, trained with AugMix (RobustBench's Hendrycks2020AugMix_WRN)."""

    name = "wrn-40-2"
    scale = HALF
    head = "fc.weight"
    published = {  # noqa: RUF012
        classes: RobustBenchFile(f"cifar{classes}/corruptions/Hendrycks2020AugMix_WRN.pt")
        for classes in (10, 100)
    }

    def network(self) -> nn.Module:
        return WideResNet(40, 2, self.classes)

    def adapter(self, net: nn.Module, **facts: Any) -> Model:
        return WideResNetModel(net, **facts)


@dataclass
class ResNeXt29(CifarModel):
    """ResNeXt-29 with 4 groups of 32, trained with AugMix (RobustBench's Hendrycks2020AugMix_ResNeXt)."""

    name = "resnext-29"
    scale = HALF
    head = "classifier.weight"
    published = {  # noqa: RUF012
        classes: RobustBenchFile(f"cifar{classes}/corruptions/Hendrycks2020AugMix_ResNeXt.pt")
        for classes in (10, 100)
    }

    classes: Literal[10, 100] = 100  # of CIFAR-10 or CIFAR-100

    def network(self) -> nn.Module:
        return CifarResNeXt(self.classes)

    def adapter(self, net: nn.Module, **facts: Any) -> Model:
        return ResNeXtModel(net, **facts)
