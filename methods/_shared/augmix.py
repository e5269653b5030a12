"""AugMix views of one image (Hendrycks et al., 2020), as MEMO draws them.

`draw_recipe` draws all random numbers as plain data; `make_views` applies them, each operation to all
of its images at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor

from tta_bench_methods._shared.augment import Matrix, crop, rotation, warp

CHAINS = 3
MAX_DEPTH = 3


@dataclass(frozen=True)
class Recipe:
    """How to make views: `links[depth]` maps each operation to its chains and strengths."""

    crops: list[Matrix]
    links: list[dict[str, list[tuple[int, float]]]]
    chain_weights: list[list[float]]  # Dirichlet(1, 1, 1) per view
    view_weights: list[float]  # Beta(1, 1) per view


def draw_recipe(views: int, seed: int) -> Recipe:
    """Random crops, and three chains of one to three operations for each of them."""
    draw = Random(seed)
    return Recipe(
        crops=[draw_crop(draw) for _ in range(views)],
        links=draw_links(draw, views * CHAINS),
        chain_weights=[draw_dirichlet(draw) for _ in range(views)],
        view_weights=[draw.random() for _ in range(views)],
    )


def draw_crop(draw: Random) -> Matrix:
    """A box of 8–100 % of the area, 3:4 to 4:3, mirrored half the time; ten tries to fit it in."""
    for _ in range(10):
        area = draw.uniform(0.08, 1)
        ratio = math.exp(draw.uniform(math.log(3 / 4), math.log(4 / 3)))
        width, height = math.sqrt(area * ratio), math.sqrt(area / ratio)
        if width <= 1 and height <= 1:
            left, top = draw.uniform(0, 1 - width), draw.uniform(0, 1 - height)
            return crop(left, top, width, height, draw.random() < 0.5)
    return crop(0, 0, 1, 1, draw.random() < 0.5)


def draw_links(draw: Random, chains: int) -> list[dict[str, list[tuple[int, float]]]]:
    """For each depth, operation → [(chain, strength between ±1)]."""
    links: list[dict[str, list[tuple[int, float]]]] = [{} for _ in range(MAX_DEPTH)]
    for chain in range(chains):
        for link in links[: draw.randint(1, MAX_DEPTH)]:
            strength = draw.uniform(0.1, 1) / 10 * draw.choice((-1, 1))
            link.setdefault(draw.choice(list(OPERATIONS)), []).append((chain, strength))
    return links


def draw_dirichlet(draw: Random) -> list[float]:
    """Weights that sum to one, from the uniform Dirichlet distribution."""
    parts = [draw.expovariate(1) for _ in range(CHAINS)]
    return [part / sum(parts) for part in parts]


def make_views(image: Tensor, recipe: Recipe) -> Tensor:
    """Views [V, 3, H, W] of an image [1, 3, H, W] in [0, 1]."""
    count = len(recipe.crops)
    base = warp(image.expand(count, -1, -1, -1), recipe.crops, padding="border")
    chains = base.repeat_interleave(CHAINS, 0)
    for link in recipe.links:
        for name, jobs in link.items():
            where = [chain for chain, _ in jobs]
            chains[where] = OPERATIONS[name](chains[where], [strength for _, strength in jobs])
    w = torch.tensor(recipe.chain_weights, dtype=image.dtype, device=image.device)
    m = torch.tensor(recipe.view_weights, dtype=image.dtype, device=image.device)
    mixed = torch.einsum("vk,vkchw->vchw", w, chains.unflatten(0, (count, CHAINS)))
    return torch.lerp(mixed, base, m.view(-1, 1, 1, 1))


def autocontrast(x: Tensor, strengths: list[float]) -> Tensor:
    """Each channel stretched to [0, 1]; a constant channel stays as it is."""
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    return torch.where(high > low, (x - low) / (high - low).clamp_min(1e-8), x)


def equalize(x: Tensor, strengths: list[float]) -> Tensor:
    """Each channel with its histogram equalised over 256 levels, as Pillow does it."""
    levels = (x.nan_to_num().clamp(0, 1) * 255).round().long().flatten(2)
    counts = torch.zeros(*levels.shape[:2], 256, dtype=torch.long, device=x.device)
    counts.scatter_add_(2, levels, torch.ones_like(levels))
    brightest = counts.gather(2, levels.amax(2, keepdim=True))
    step = (levels.shape[2] - brightest) // 255
    below = counts.cumsum(2) - counts
    table = ((below + step // 2) // step.clamp_min(1)).clamp(0, 255) / 255
    return torch.where(step[..., None] > 0, table.gather(2, levels).view_as(x), x)


def solarize(x: Tensor, strengths: list[float]) -> Tensor:
    """Pixels above a threshold near white, inverted."""
    threshold = torch.tensor([1 - abs(s) for s in strengths], dtype=x.dtype, device=x.device)
    return torch.where(x < threshold.view(-1, 1, 1, 1), x, 1 - x)


def posterize(x: Tensor, strengths: list[float]) -> Tensor:
    """Four bits per channel: no published strength gives fewer."""
    return (x * 255 / 16).floor() * 16 / 255


def warped(matrix: Callable[[float], Matrix]) -> Callable[[Tensor, list[float]], Tensor]:
    """An operation that warps each image by the matrix for its strength."""
    return lambda x, strengths: warp(x, [matrix(s) for s in strengths])


# Largest strengths: 30°, a shear of 0.3 about the corner, a third of the side (2/3 of half a side).
OPERATIONS: dict[str, Callable[[Tensor, list[float]], Tensor]] = {
    "autocontrast": autocontrast,
    "equalize": equalize,
    "posterize": posterize,
    "rotate": warped(lambda s: rotation(30 * s)),
    "solarize": solarize,
    "shear_x": warped(lambda s: ((1.0, 0.3 * s, 0.3 * s), (0.0, 1.0, 0.0))),
    "shear_y": warped(lambda s: ((1.0, 0.0, 0.0), (0.3 * s, 1.0, 0.3 * s))),
    "translate_x": warped(lambda s: ((1.0, 0.0, 2 / 3 * s), (0.0, 1.0, 0.0))),
    "translate_y": warped(lambda s: ((1.0, 0.0, 0.0), (0.0, 1.0, 2 / 3 * s))),
}
