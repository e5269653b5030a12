"""Copies of a network that teach it: frozen, or following it by a moving average."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tta_bench.api import Model


def frozen_copy(model: Model) -> Model:
    """A copy without gradients, whose passes are counted as those of the model."""
    twin = copy.deepcopy(model).requires_grad_(False)
    twin.passes = model.passes
    return twin


@torch.no_grad()
def follow_(teacher: Sequence[Tensor], student: Sequence[Tensor], rate: float) -> None:
    """teacher ← (1 − rate)·teacher + rate·student."""
    for mine, theirs in zip(teacher, student, strict=True):
        mine.lerp_(theirs, rate)


def weights_and_biases(model: Model) -> list[nn.Parameter]:
    """All parameters of these names, not class token and positions."""
    return [p for name, p in model.named_parameters() if name.split(".")[-1] in ("weight", "bias")]
