"""Batches and labels of a stream. Features are computed once for all methods and rounds of a task.

Features of the current segment are in memory, for the methods that read it one after the other. Features of
all segments are on disk, as many as fit there, for later segments with the same fingerprint: the same images
in the same batches.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tta_bench.api import Data, Domain, Model
from tta_bench.api.stream import Pairs
from tta_bench.execution.feature_cache import FeatureCache
from tta_bench.grid import Cell

Batch = tuple[Tensor, float]  # the input of a method's step, and the seconds it took to compute


class Targets(NamedTuple):
    """What a batch is scored with: of each image its label, and the number of its visit in the segment."""

    labels: Tensor
    visits: Tensor


class StreamReader:
    """The stream of one task, as methods and scores read it."""

    def __init__(self, data: Data, cell: Cell, num_classes: int, keep: bool) -> None:
        """`keep` stores features on disk, because later segments read them again."""
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
        self.stream = cell.stream(self.truth.numpy())
        self._current = ""  # the fingerprint of the segment whose features are in memory
        self._in_memory: dict[int, dict[int, Batch]] = {}  # by model, then by batch number
        self._on_disk = FeatureCache() if keep else None

    def targets(self, round: int, segment: int) -> list[Targets]:
        """Labels and visits of the images of every batch of a segment."""
        pairs = map(torch.from_numpy, self.stream.batches(round, segment))
        return [Targets(self.truth[each[:, 1]], each[:, 0]) for each in pairs]

    def images(self, round: int, segment: int, first: int, device: torch.device) -> Iterator[Batch]:
        """The images of a segment from batch number `first` on, as copies that a method may change."""
        wanted = self.stream.batches(round, segment)[first:]
        return ((batch, 0.0) for batch in _on(device, self._read(round, segment, wanted)))

    def features(self, backbone: Model, round: int, segment: int, first: int) -> Iterator[Batch]:
        """Features of these images, as copies; methods never get the backbone that computes them."""
        batches = self.stream.batches(round, segment)
        fingerprint = self.stream.fingerprint(round, segment, "")  # all segments are of the same data
        known = self._known(backbone, fingerprint, len(batches))
        wanted = [pairs for i, pairs in enumerate(batches) if i >= first and i not in known]
        images = _on(backbone.device, self._read(round, segment, wanted))
        for i in range(first, len(batches)):
            if i not in known:
                known[i] = self._features(backbone, next(images))
                if self._on_disk is not None:
                    self._on_disk.put((id(backbone), fingerprint, i), *known[i])
            z, seconds = known[i]
            yield z.clone(), seconds

    def _read(self, round: int, segment: int, batches: Sequence[Pairs]) -> Iterator[Tensor]:
        domains = self.stream.schedule.segments(round)[segment].domains
        return read_batches(self.data, domains, batches)

    def _known(self, model: Model, fingerprint: str, count: int) -> dict[int, Batch]:
        """The features of a segment that are already computed, by batch; drops those of other segments."""
        if fingerprint != self._current:
            self._current, self._in_memory = fingerprint, {}
        if id(model) not in self._in_memory:
            disk, keys = self._on_disk, [(id(model), fingerprint, i) for i in range(count)]
            found = {} if disk is None else {i: disk.get(key) for i, key in enumerate(keys)}
            self._in_memory[id(model)] = {i: batch for i, batch in found.items() if batch is not None}
        return self._in_memory[id(model)]

    def _features(self, model: Model, images: Tensor) -> Batch:
        start = time.perf_counter()
        with torch.no_grad():
            z = model.features(images)
            z[0, 0].item()  # a GPU returns before it has computed; reading a number waits for it
        return z, time.perf_counter() - start


def read_batches(data: Data, domains: Sequence[Domain], batches: Sequence[Pairs]) -> Iterator[Tensor]:
    """The images of each batch in turn; a thread reads as many batches ahead as the data asks for."""
    if not data.read_ahead:  # data in memory: a second thread would only take a core from the method
        yield from (read_batch(data, domains, pairs) for pairs in batches)
        return
    reader = ThreadPoolExecutor(1, "read-ahead")
    try:
        pending: deque[Future[Tensor]] = deque()
        for pairs in batches:
            pending.append(reader.submit(_read_pinned, data, domains, pairs))
            if len(pending) > data.read_ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:  # also when the caller stops early
        reader.shutdown(cancel_futures=True)


def read_batch(data: Data, domains: Sequence[Domain], pairs: Pairs) -> Tensor:
    """The images of one batch, which may come from several domains."""
    first = int(pairs[0, 0])
    if (pairs[:, 0] == first).all():
        return data.test_images(domains[first], pairs[:, 1])
    parts = [(pairs[:, 0] == number, domain) for number, domain in enumerate(domains)]
    places = np.concatenate([np.flatnonzero(own) for own, _ in parts])
    images = [data.test_images(domain, pairs[own, 1]) for own, domain in parts if own.any()]
    return torch.cat(images)[torch.from_numpy(np.argsort(places))]


def _read_pinned(data: Data, domains: Sequence[Domain], pairs: Pairs) -> Tensor:
    images = read_batch(data, domains, pairs)
    return images.pin_memory() if torch.cuda.is_initialized() else images  # so that copies to a GPU overlap


def _on(device: torch.device, images: Iterator[Tensor]) -> Iterator[Tensor]:
    """Copies of the images on a device; copies of pinned memory do not block the CPU."""
    for batch in images:
        yield batch.to(device, non_blocking=True, copy=True)
