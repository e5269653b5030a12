"""Batches and labels for the lanes of one task. Features are computed once for all methods and rounds.

Those of the domain in use are in memory, for the methods that read it in turn; those of all domains are on
disk, for the next round, as many as fit there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
from torch import Tensor

from tta_bench.api import Data, Domain, Model
from tta_bench.data import read_ahead
from tta_bench.features import FeatureCache
from tta_bench.grid import Cell

Batch = tuple[Tensor, float]  # what a method's step receives, and the seconds it took to get
Visit = tuple[int, Domain]  # round, or 0 if every round brings the same batches


class Feed:
    """The stream of one task, as methods and scores read it."""

    def __init__(self, data: Data, cell: Cell, num_classes: int, keep: bool) -> None:
        """`keep` says whether later rounds read these features again."""
        self.data = data
        self.truth = torch.from_numpy(data.test_labels())
        if len(self.truth) == 0:
            raise ValueError(f"data {cell.data.use} has no test images")
        low, high = int(self.truth.min()), int(self.truth.max())
        if low < 0 or high >= num_classes:
            raise ValueError(
                f"data {cell.data.use} has labels from {low} to {high}, "
                f"and the model knows {num_classes} classes"
            )
        self.stream = cell.stream(len(self.truth))
        self._visit: Visit | None = None
        self._in_use: dict[int, dict[int, Batch]] = {}  # by model, then by number of the batch
        self._on_disk = FeatureCache() if keep else None

    def labels(self, round: int, domain: Domain) -> list[Tensor]:
        """The labels of every batch of a domain."""
        return [self.truth[torch.from_numpy(index)] for index in self.stream.batches(round, domain)]

    def images(self, round: int, domain: Domain, first: int, device: torch.device) -> Iterator[Batch]:
        """The images of a domain from batch number `first` on, for the receiver to change."""
        wanted = self.stream.batches(round, domain)[first:]
        return ((batch, 0.0) for batch in _on(device, read_ahead.batches(self.data, domain, wanted)))

    def features(self, backbone: Model, round: int, domain: Domain, first: int) -> Iterator[Batch]:
        """Features z of these images, for the receiver to change. No method ever has the backbone itself."""
        known = self._known(backbone, round, domain)
        indices = self.stream.batches(round, domain)
        wanted = [index for i, index in enumerate(indices) if i >= first and i not in known]
        images = _on(backbone.device, read_ahead.batches(self.data, domain, wanted))
        for i in range(first, len(indices)):
            if i not in known:
                known[i] = self._features(backbone, next(images))
                if self._on_disk is not None:
                    self._on_disk.put((id(backbone), domain, i), *known[i])
            z, seconds = known[i]
            yield z.clone(), seconds

    def _known(self, model: Model, round: int, domain: Domain) -> dict[int, Batch]:
        """The features of a domain that need not be computed, by batch; those of others make room."""
        visit = (0 if self.stream.fixed_batches else round, domain)
        if visit != self._visit:
            self._visit, self._in_use = visit, {}
        if id(model) not in self._in_use:
            count = len(self.stream.batches(round, domain))
            found = {i: self._on_disk.get((id(model), domain, i)) for i in range(count) if self._on_disk}
            self._in_use[id(model)] = {i: batch for i, batch in found.items() if batch is not None}
        return self._in_use[id(model)]

    def _features(self, model: Model, images: Tensor) -> Batch:
        start = time.perf_counter()
        with torch.no_grad():
            z = model.features(images)
            z[0, 0].item()  # a GPU answers before it is done; to read a number is to wait for it
        return z, time.perf_counter() - start


def _on(device: torch.device, images: Iterator[Tensor]) -> Iterator[Tensor]:
    """Copies of the images on a device; pinned ones travel while the CPU goes on."""
    for batch in images:
        yield batch.to(device, non_blocking=True, copy=True)
