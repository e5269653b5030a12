"""CoTTA's augmentation: colour jitter, a small affine warp, blur, flip and noise, drawn once per batch."""

from __future__ import annotations

from random import Random

import torch
import torch.nn.functional as F
from torch import Tensor

from tta_bench_methods._shared.augment import grey, rotation, warp

BLUR_REACH = 2  # a 5×5 kernel


def jitter(x: Tensor, seed: int) -> Tensor:
    """One random view of each image in [0, 1]; the images share all draws except the noise."""
    draw = Random(seed)
    x = recoloured(x, draw)
    x = blur(move(x, draw, "border", margin=BLUR_REACH), draw.uniform(0.001, 0.5))
    if draw.random() < 0.5:
        x = x.flip(-1)
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(seed))
    return (x + 0.005 * noise.to(x)).clamp(0, 1)


def sharp_jitter(x: Tensor, seed: int) -> Tensor:
    """ROID's augmentation: the same without blur and noise, with reflected borders."""
    draw = Random(seed)
    x = move(recoloured(x, draw), draw, "reflection", margin=0)
    return x.flip(-1) if draw.random() < 0.5 else x


def recoloured(x: Tensor, draw: Random) -> Tensor:
    """Images after all colour changes, in random order."""
    x = x.clamp(0, 1)
    for change, low, high in draw.sample(COLOUR_CHANGES, len(COLOUR_CHANGES)):
        x = change(x, draw.uniform(low, high)).clamp(0, 1)
    return x


def move(x: Tensor, draw: Random, padding: str, margin: int) -> Tensor:
    """Images rotated, scaled and moved a little, with a margin, such as a blur reads.

    The published code pads by half the side with edge pixels, warps, and crops the centre. The warp never
    reaches beyond that padding, so repeating the nearest edge pixel gives the same. Moves are up to 1/16 of
    the padded side, which is 1/8 of the image's side, or 1/4 in units of half a side.
    """
    degrees, scale = draw.uniform(-15, 15), draw.uniform(0.9, 1.1)
    dx, dy = draw.uniform(-1 / 4, 1 / 4), draw.uniform(-1 / 4, 1 / 4)
    return warp(x, [rotation(degrees, scale, dx, dy)], padding=padding, margin=margin)


def blur(x: Tensor, sigma: float) -> Tensor:
    """Gaussian blur; the result has BLUR_REACH pixels less on every side."""
    taps = torch.arange(-BLUR_REACH, BLUR_REACH + 1, dtype=x.dtype, device=x.device)
    kernel = (-0.5 * (taps / sigma) ** 2).softmax(0)
    channels = x.shape[1]
    rows = kernel.view(1, 1, 1, -1).expand(channels, 1, 1, -1)
    return F.conv2d(F.conv2d(x, rows, groups=channels), rows.mT, groups=channels)


def brightness(x: Tensor, factor: float) -> Tensor:
    """Images times a factor."""
    return x * factor


def contrast(x: Tensor, factor: float) -> Tensor:
    """Images blended with their mean luminance."""
    return torch.lerp(grey(x).mean((2, 3), keepdim=True), x, factor)


def saturation(x: Tensor, factor: float) -> Tensor:
    """Images blended with their luminance."""
    return torch.lerp(grey(x), x, factor)


def gamma(x: Tensor, exponent: float) -> Tensor:
    """Images to a power."""
    return x**exponent


def hue(x: Tensor, turn: float) -> Tensor:
    """Images with their hue rotated by a fraction of the colour circle, in HSV."""
    value, brightest = x.max(1)
    chroma = value - x.amin(1)
    red, green, blue = x.unbind(1)
    unit = chroma.clamp_min(1e-8)
    sectors = torch.stack([(green - blue) / unit, (blue - red) / unit + 2, (red - green) / unit + 4])
    sixths = sectors.gather(0, brightest[None])[0] + 6 * turn
    # HSV → RGB: f(n) = V − C·max(0, min(k, 4 − k, 1)) with k = (n + 6·hue) mod 6.
    n = torch.tensor([5, 3, 1], dtype=x.dtype, device=x.device).view(1, 3, 1, 1)
    k = (n + sixths[:, None]) % 6
    return value[:, None] - chroma[:, None] * torch.minimum(k, 4 - k).clamp(0, 1)


COLOUR_CHANGES = (
    (brightness, 0.6, 1.4),
    (contrast, 0.7, 1.3),
    (saturation, 0.5, 1.5),
    (hue, -0.06, 0.06),
    (gamma, 0.7, 1.3),
)
