"""Section `data`: the time to read a batch, over the time of the pass that uses it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from bench.measure import Clock, Measure, race, ratios
from bench.networks import floating, images
from tta_bench.api import Domain, View
from tta_bench.data.cifar10.mini import Cifar10Mini
from tta_bench.data.images import decode

JPEG_SIDE, QUALITY = 224, 85  # as ImageNet-C's files are


@torch.no_grad()
def data(clock: Clock) -> Iterator[Measure]:
    """Corrupted sets from the cache, and JPEG files, over an FP32 pass."""
    embedded, index = Cifar10Mini(), np.arange(64)
    micro = floating("vit-micro")
    x = images(micro, 64)
    runs = {"pass": lambda: micro(x), "read": lambda: embedded.test_images(Domain("fog", 5), index)}
    yield from ratios("vit-micro, batch 64, a cached set", race(runs, clock), "pass", {})
    large = floating("vit-b")
    y = images(large, 16)
    with tempfile.TemporaryDirectory() as folder:
        paths = list(_photographs(Path(folder), 16))
        view = View(JPEG_SIDE, 0)
        runs = {"pass": lambda: large(y), "read": lambda: decode.read_all(paths, view)}
        yield from ratios("vit-b, batch 16, JPEG files", race(runs, clock), "pass", {})


def _photographs(folder: Path, count: int) -> Iterator[Path]:
    """Embedded photographs at ImageNet-C's size: noise would take longer to decode."""
    data = Cifar10Mini()
    for i, image in enumerate(data.test_images(Domain("clean", 0), np.arange(count))):
        pixels = (image.permute(1, 2, 0) * 255).byte().numpy()
        path = folder / f"{i}.jpg"
        Image.fromarray(pixels).resize((JPEG_SIDE, JPEG_SIDE)).save(path, quality=QUALITY)
        yield path
