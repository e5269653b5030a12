"""Disk space that a benchmark needs, estimated before anything is downloaded.

Image sizes come from the published archives and are right to about 10 %; weights are exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tta_bench.api import Model
from tta_bench.corruptions.sets import GROUPS, HELD_OUT_4
from tta_bench.footprint.skeleton import skeleton
from tta_bench.grid import Cell
from tta_bench.planning.sharing import FEATURE_CACHE_BYTES
from tta_bench.planning.tasks import Task, kept_images, segment_batches, tasks
from tta_bench.plugins import registry

# Bytes per image: ImageNet-C by its archives of 21, 7, 12, 7 and 15 GiB, averaged over severities.
IMAGENET_C = {"Noise": 30_000, "Blur": 7_500, "Weather": 12_900, "Digital": 7_500}
IMAGENET_C_EXTRA = 16_100
IMAGES = {"imagenet": 135_000, "imagenet-r": 70_000, "imagenet-sketch": 150_000}
IMAGES |= {"cifar10-c": 3_072, "cifar100-c": 3_072}
CLEAN_IMAGES = 50_000  # of ImageNet's validation set
SOURCE = {"imagenet-c", "imagenet-r", "imagenet-sketch"}  # clean images come from ImageNet's validation set
RECORD, BATCH = 700, 4  # bytes of a record, plus bytes per batch in it


class Disk(NamedTuple):
    """Approximate bytes."""

    images: int
    weights: int
    results: int
    features: int  # kept by one worker to be read again, at most


def needed(cells: Sequence[Cell]) -> Disk:
    """What a grid reads and writes; images of unknown size count as 0."""
    used = {cell.model.digest: cell.model for cell in cells}  # each is built once: large grids have few
    models = {digest: skeleton(model.make()) for digest, model in used.items()}
    return Disk(
        images=_images(cells),
        weights=sum(p.numel() * p.element_size() for model in models.values() for p in model.parameters()),
        results=sum(cell.records_expected * (RECORD + BATCH * segment_batches(cell)) for cell in cells),
        features=max(
            (_features(task, models[task.cells[0].cell.model.digest]) for task in tasks(cells)), default=0
        ),
    )


def _features(task: Task, model: Model) -> int:
    """Bytes of the features that later segments read again, for every kind of pass."""
    rereading = [each for each in task.cells if each.rereads]
    if not rereading:
        return 0
    kinds = {each.cell.method.make().batch_statistics(model) for each in rereading}
    width = model.classifier.in_features
    return min(FEATURE_CACHE_BYTES, len(kinds) * kept_images(rereading[0]) * width * 4)


def _images(cells: Iterable[Cell]) -> int:
    domains = {(cell.data.use, domain.corruption) for cell in cells for domain in cell.visited}
    data = {use for use, _ in domains}
    clean = "imagenet" in data or bool(data & SOURCE)
    total = sum(_size(use, name) * registry.load("data", use).size for use, name in domains)
    return total + (IMAGES["imagenet"] * CLEAN_IMAGES if clean else 0)


def _size(use: str, domain: str) -> int:
    """Bytes of one image of a domain; clean images of ImageNet are counted separately, only once."""
    if use in ("imagenet", "imagenet-c"):  # `imagenet` makes the same files itself
        if domain in HELD_OUT_4:
            return IMAGENET_C_EXTRA
        return IMAGENET_C.get(GROUPS.get(domain, ""), 0)
    return IMAGES.get(use, 0)
