"""Batches and labels of a stream. Features are computed once for all methods and rounds of a task.

Features of the current domain are in memory, for the methods that read it one after the other. Features of
all domains are on disk, for the next round, as many as fit there.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from tta_bench.api import Data, Domain, Model
from tta_bench.execution.feature_cache import FeatureCache
from tta_bench.grid import Cell

Batch = tuple[Tensor, float]  # the input of a method's step, and the seconds it took to compute
RoundOfDomain = tuple[int, Domain]  # the round is 0 if every round has the same batches


class StreamReader:
    """The stream of one task, as methods and scores read it."""

    def __init__(self, data: Data, cell: Cell, num_classes: int, keep: bool) -> None:
        """`keep` stores features on disk, because later rounds read them again."""
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
        self._current: RoundOfDomain | None = None
        self._in_memory: dict[int, dict[int, Batch]] = {}  # by model, then by batch number
        self._on_disk = FeatureCache() if keep else None

    def labels(self, round: int, domain: Domain) -> list[Tensor]:
        """The labels of every batch of a domain."""
        return [self.truth[torch.from_numpy(index)] for index in self.stream.batches(round, domain)]

    def images(self, round: int, domain: Domain, first: int, device: torch.device) -> Iterator[Batch]:
        """The images of a domain from batch number `first` on, as copies that a method may change."""
        wanted = self.stream.batches(round, domain)[first:]
        return ((batch, 0.0) for batch in _on(device, read_batches(self.data, domain, wanted)))

    def features(self, backbone: Model, round: int, domain: Domain, first: int) -> Iterator[Batch]:
        """Features of these images, as copies; methods never get the backbone that computes them."""
        known = self._known(backbone, round, domain)
        indices = self.stream.batches(round, domain)
        wanted = [index for i, index in enumerate(indices) if i >= first and i not in known]
        images = _on(backbone.device, read_batches(self.data, domain, wanted))
        for i in range(first, len(indices)):
            if i not in known:
                known[i] = self._features(backbone, next(images))
                if self._on_disk is not None:
                    self._on_disk.put((id(backbone), domain, i), *known[i])
            z, seconds = known[i]
            yield z.clone(), seconds

    def _known(self, model: Model, round: int, domain: Domain) -> dict[int, Batch]:
        """The features of a domain that are already computed, by batch; drops those of other domains."""
        wanted = (0 if self.stream.fixed_batches else round, domain)
        if wanted != self._current:
            self._current, self._in_memory = wanted, {}
        if id(model) not in self._in_memory:
            count = len(self.stream.batches(round, domain))
            found = {i: self._on_disk.get((id(model), domain, i)) for i in range(count) if self._on_disk}
            self._in_memory[id(model)] = {i: batch for i, batch in found.items() if batch is not None}
        return self._in_memory[id(model)]

    def _features(self, model: Model, images: Tensor) -> Batch:
        start = time.perf_counter()
        with torch.no_grad():
            z = model.features(images)
            z[0, 0].item()  # a GPU returns before it has computed; reading a number waits for it
        return z, time.perf_counter() - start


def read_batches(data: Data, domain: Domain, indices: Sequence[np.ndarray]) -> Iterator[Tensor]:
    """The images at each index in turn; a thread reads as many batches ahead as the data asks for."""
    if not data.read_ahead:  # data in memory: a second thread would only take a core from the method
        yield from (data.test_images(domain, index) for index in indices)
        return
    reader = ThreadPoolExecutor(1, "read-ahead")
    try:
        pending: deque[Future[Tensor]] = deque()
        for index in indices:
            pending.append(reader.submit(_read, data, domain, index))
            if len(pending) > data.read_ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:  # also when the caller stops early
        reader.shutdown(cancel_futures=True)


def _read(data: Data, domain: Domain, index: np.ndarray) -> Tensor:
    images = data.test_images(domain, index)
    return images.pin_memory() if torch.cuda.is_initialized() else images  # so that copies to a GPU overlap


def _on(device: torch.device, images: Iterator[Tensor]) -> Iterator[Tensor]:
    """Copies of the images on a device; copies of pinned memory do not block the CPU."""
    for batch in images:
        yield batch.to(device, non_blocking=True, copy=True)
