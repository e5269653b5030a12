"""Affine warps of square images, for the augmentations of CoTTA and MEMO."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

# Rows ((a, b, c), (d, e, f)): an output pixel at (x, y) reads the input at (ax+by+c, dx+ey+f), both
# in coordinates that run from -1 to 1 across the image.
Matrix = tuple[tuple[float, float, float], tuple[float, float, float]]


def warp(x: Tensor, matrices: list[Matrix], padding: str = "zeros", margin: int = 0) -> Tensor:
    """Images warped bilinearly, each by its own matrix or all by one; the result has `margin` pixels more
    on every side."""
    side = x.shape[-1] + 2 * margin
    zoom = side / x.shape[-1]  # the grid spans -1 to 1 over the larger image
    theta = torch.tensor(matrices, dtype=x.dtype, device=x.device).expand(len(x), 2, 3)
    theta = theta * torch.tensor([zoom, zoom, 1], dtype=x.dtype, device=x.device)
    grid = F.affine_grid(theta, [*x.shape[:2], side, side], align_corners=False)
    return F.grid_sample(x, grid, padding_mode=padding, align_corners=False)


def rotation(degrees: float, scale: float = 1.0, dx: float = 0.0, dy: float = 0.0) -> Matrix:
    """The matrix that rotates about the centre, scales, and then moves by (dx, dy)."""
    cos = math.cos(math.radians(degrees)) / scale
    sin = math.sin(math.radians(degrees)) / scale
    return (cos, sin, -cos * dx - sin * dy), (-sin, cos, sin * dx - cos * dy)


def crop(left: float, top: float, width: float, height: float, flip: bool) -> Matrix:
    """The matrix that enlarges a box, in fractions of the side, to the whole image; mirrored if `flip`."""
    x, y = 2 * left + width - 1, 2 * top + height - 1
    return (-width if flip else width, 0.0, x), (0.0, height, y)


def grey(x: Tensor) -> Tensor:
    """Luminance [B, 1, H, W]."""
    weights = torch.tensor([0.299, 0.587, 0.114], dtype=x.dtype, device=x.device)
    return (x * weights.view(1, 3, 1, 1)).sum(1, keepdim=True)
