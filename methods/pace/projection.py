"""A random linear map from few numbers to many, by two Walsh–Hadamard transforms (Fastfood)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


class Fastfood:
    """v ↦ A·v from R^few to R^many. On the average over v, A keeps the norm.

    v is padded with zeros to N numbers, the next power of two; random signs, transform, permutation, random
    signs and transform follow; the first `many` of the N numbers are kept.
    """

    def __init__(self, few: int, many: int, rng: torch.Generator, device: torch.device) -> None:
        self.many = many
        self.size = 1 << (max(few, many) - 1).bit_length()
        draws = [torch.randint(2, (self.size,), generator=rng) * 2.0 - 1 for _ in range(2)]
        self.signs = [signs.to(device) for signs in draws]
        self.order = torch.randperm(self.size, generator=rng).to(device)
        # Both transforms multiply the norm by √N, and the cut by √(D/N).
        self.scale = (self.size / many) ** 0.5 / self.size

    def __call__(self, v: Tensor) -> Tensor:
        padded = F.pad(v, (0, self.size - len(v)))
        mixed = walsh_hadamard(padded * self.signs[0])[self.order]
        return walsh_hadamard(mixed * self.signs[1])[: self.many] * self.scale


def walsh_hadamard(x: Tensor) -> Tensor:
    """The unnormalised Walsh–Hadamard transform of a vector whose length is a power of two."""
    step = 1
    while step < len(x):
        a, b = x.view(-1, 2, step).unbind(1)
        x = torch.stack([a + b, a - b], 1).flatten()
        step *= 2
    return x
