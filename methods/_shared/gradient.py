"""Base classes of gradient methods: trainable parameters, checked optimizer steps, and saved states."""

from __future__ import annotations

import copy
import zlib
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from tta_bench.api import Method, Model, Momentum, NonNegative, Norm, Source


@contextmanager
def learning() -> Iterator[None]:
    """Turn gradients on and inference mode off, whatever the caller's mode."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


class GradientMethod(Method):
    """Base of methods that minimise a loss. A subclass defines `adapt`; `trainable` if it trains other
    parameters than those of all norm layers; and lists in `remembers` its other attributes that a stream
    changes."""

    family = "backprop"
    backprop = True
    backwards = 1
    needs = "gradients, norm layers"

    lr: NonNegative
    momentum: Momentum = 0.9
    nesterov: bool = False
    parameters: list[nn.Parameter]
    optimizer: str = "sgd"  # "adam" has neither momentum nor nesterov
    weight_decay: float = 0.0
    trains: ClassVar[str] = "normalisation layers"  # what `trainable` returns, for messages
    remembers: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov needs a momentum greater than 0.")

    def trainable(self, model: Model) -> list[nn.Parameter]:
        """The parameters that are trained."""
        return affine_parameters(model.norms())

    def unsupported(self, model: Model) -> str | None:
        reason = super().unsupported(model)
        if reason is None and not self.trainable(model):
            return f"needs {self.trains}, and {model.name} has none"
        return reason

    @learning()
    def setup(self, model: Model, source: Source) -> None:
        self.model = model
        self.prepare_(model, source)
        self.parameters = self.trainable(model)
        model.requires_grad_(False)
        for parameter in self.parameters:
            parameter.requires_grad_(True)
        self.updater = self.new_optimizer()
        self.initial = self.snapshot()

    def prepare_(self, model: Model, source: Source) -> None:
        """Choose the statistics of BatchNorm layers, before anything is copied."""
        model.use_batch_statistics()

    def new_optimizer(self) -> torch.optim.Optimizer:
        """The optimizer of the trainable parameters."""
        decay = self.weight_decay
        if self.optimizer == "adam":
            return torch.optim.Adam(self.parameters, self.lr, weight_decay=decay)
        options: dict[str, Any] = dict(momentum=self.momentum, nesterov=self.nesterov, weight_decay=decay)
        return torch.optim.SGD(self.parameters, self.lr, **options)

    @abstractmethod
    def adapt(self, x: Tensor) -> Tensor:
        """Predict this batch and learn from it; called with gradients on."""

    @learning()
    def step(self, x: Tensor) -> Tensor:
        return self.adapt(x).detach()

    def descend(self, loss: Tensor) -> bool:
        """Take one optimizer step unless the loss is not finite; return whether it was taken."""
        if not self.finite(loss, "the loss was not finite"):
            return False
        self.updater.zero_grad()
        loss.backward()
        self.updater.step()
        return True

    def finite(self, values: Tensor, otherwise: str = "logits were not finite") -> bool:
        """Whether all values are finite; if not, count a skipped update."""
        good = bool(values.isfinite().all())
        if not good:
            self.skip(otherwise)
        return good

    def tensors(self) -> list[Tensor]:
        """The tensors that the stream changes in place."""
        return [p.detach() for p in self.parameters]

    def snapshot(self) -> dict[str, Any]:
        """A copy of everything that the stream changes."""
        memory = {name: getattr(self, name) for name in self.remembers}
        state = {"tensors": self.tensors(), "optimizer": self.updater.state_dict(), **memory}
        return copy.deepcopy(state)

    @learning()
    def restore_(self, state: dict[str, Any]) -> None:
        """Return to a snapshot; later steps do not change it."""
        for mine, theirs in zip(self.tensors(), state["tensors"], strict=True):
            mine.copy_(theirs)
        self.updater.load_state_dict(copy.deepcopy(state["optimizer"]))
        for name in self.remembers:
            setattr(self, name, copy.deepcopy(state[name]))

    def reset(self) -> None:
        self.restore_(self.initial)

    def state_dict(self) -> dict[str, Any]:
        return self.snapshot()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.restore_(state)


class FirstPassMethod(GradientMethod):
    """Base of methods that answer with the pass before the step, so that `predict` takes this pass alone."""

    @learning()
    def predict(self, x: Tensor) -> Tensor:
        # With gradients on, as in a step: other kernels might give other numbers.
        return self.model(x).detach()


class EarlyNormMethod(GradientMethod):
    """Base of SAR and DeYO: the last layers are not trained, and the learning rate depends on the size of
    the stream's first batch; `lr` is for 64 images."""

    remembers = ("first_size",)

    def trainable(self, model: Model) -> list[nn.Parameter]:
        return affine_parameters(early_norms(model))

    def setup(self, model: Model, source: Source) -> None:
        self.first_size: int | None = None
        super().setup(model, source)

    def step(self, x: Tensor) -> Tensor:
        self.first_size = self.first_size or len(x)
        lr = lr_for_batch(self.lr, self.first_size, self.model.family)
        self.updater.param_groups[0]["lr"] = lr
        return super().step(x)


def affine_parameters(norms: Sequence[Norm]) -> list[nn.Parameter]:
    """Scales and biases of these layers."""
    return [p for norm in norms for p in norm.module.parameters(recurse=False)]


def early_norms(model: Model) -> list[Norm]:
    """Norm layers before the last stage or, in a network of one stage, before the last quarter.

    SAR and DeYO leave out layer4 of a ResNet, and blocks 9–11 and the final norm of a ViT-B.
    """
    sizes = model.stage_sizes()
    end = sum(sizes[:-1]) if len(sizes) > 1 else 3 * sizes[0] // 4
    return [norm for norm in model.norms() if norm.block < end]


def lr_for_batch(lr: float, images: int, family: str) -> float:
    """SAR's and DeYO's learning rate at this batch size: linear, constant for a ResNet from 32 images on,
    and doubled for single images."""
    plateau = family == "resnet"
    scale = min(1.0, 2 * images / 64) if plateau else images / 64
    return lr * scale * (2 if images == 1 else 1)


def entropy(logits: Tensor) -> Tensor:
    """Shannon entropy of each row's softmax, in nats."""
    return -(logits.softmax(1) * logits.log_softmax(1)).sum(1)


def mean_over(values: Tensor, kept: Tensor) -> Tensor:
    """Mean of the kept rows; zero, with a zero gradient, where none is kept."""
    return kept.to(values.dtype) @ values / kept.sum().clamp(min=1)


def derived_seed(*words: int) -> int:
    """A seed made of others, so that draws depend on a counter and not on earlier draws."""
    return zlib.crc32("/".join(map(str, words)).encode())
