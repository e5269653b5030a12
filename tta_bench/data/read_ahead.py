"""Batches that are read while the one before them is in use."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from tta_bench.api import Data, Domain


def batches(data: Data, domain: Domain, indices: Sequence[np.ndarray]) -> Iterator[Tensor]:
    """The images at each index in turn, as many batches ahead as the data wants."""
    if not data.read_ahead:  # data in memory: a second thread would only take a core from the method
        yield from (data.test_images(domain, index) for index in indices)
        return
    reader = ThreadPoolExecutor(1, "read-ahead")
    try:
        waiting: deque[Future[Tensor]] = deque()
        for index in indices:
            waiting.append(reader.submit(_read, data, domain, index))
            if len(waiting) > data.read_ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:  # also when nobody wants the rest
        reader.shutdown(cancel_futures=True)


def _read(data: Data, domain: Domain, index: np.ndarray) -> Tensor:
    images = data.test_images(domain, index)
    return images.pin_memory() if torch.cuda.is_initialized() else images  # so that copies to a GPU overlap
