"""Batches and labels for the lanes of one task. Features are computed once, and kept while they fit."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
from torch import Tensor

from tta_bench.api import Data, Domain, Method, Model
from tta_bench.data import read_ahead
from tta_bench.grid import Cell

FEATURE_CACHE_BYTES = 512 * 2**20
Batch = tuple[Tensor, float]  # what a method's step receives, and the seconds it took to get


class Feed:
    """The stream of one task, as methods and scores read it."""

    def __init__(self, data: Data, cell: Cell, num_classes: int) -> None:
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
        self._kept: dict[tuple[int, int, Domain], dict[int, Batch]] = {}

    def labels(self, round: int, domain: Domain) -> list[Tensor]:
        """The labels of every batch of a domain."""
        return [self.truth[torch.from_numpy(index)] for index in self.stream.batches(round, domain)]

    def batches(
        self, method: Method, model: Model, round: int, domain: Domain, first: int
    ) -> Iterator[Batch]:
        """What a method receives, in order, from batch number `first` on."""
        known = self._domain(model, round, domain) if method.consumes == "features" else {}
        indices = self.stream.batches(round, domain)
        wanted = [index for i, index in enumerate(indices) if i >= first and i not in known]
        images = read_ahead.batches(self.data, domain, wanted)
        for i in range(first, len(indices)):
            if method.consumes == "images":
                yield next(images), 0.0
                continue
            if i not in known:
                known[i] = self._features(model, next(images))
            yield known[i]

    def _domain(self, model: Model, round: int, domain: Domain) -> dict[int, Batch]:
        """The features that are kept of a domain, by batch; others make room, but not those in use."""
        turn = 0 if self.stream.fixed_batches else round
        if (id(model), turn, domain) not in self._kept:
            kept = sum(z.nbytes for batches in self._kept.values() for z, _ in batches.values())
            if kept > FEATURE_CACHE_BYTES or not self.stream.fixed_batches:
                self._kept = {k: v for k, v in self._kept.items() if k[1:] == (turn, domain)}
        return self._kept.setdefault((id(model), turn, domain), {})

    def _features(self, model: Model, images: Tensor) -> Batch:
        start = time.perf_counter()
        with torch.no_grad():
            z = model.features(images)
        return z, time.perf_counter() - start
