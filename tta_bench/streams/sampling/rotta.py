"""RoTTA's and DELTA's Dirichlet order: each class is spread over slots of the stream, without balancing them.

RoTTA (Yuan, Xie and Li, CVPR 2023) has a slot for each class, but at most 100; DELTA (Zhao, Chen and Xia,
ICLR 2023) has 10. RoTTA takes the images of a class in the order of the data; here they are shuffled first.
"""

from __future__ import annotations

import numpy as np

from tta_bench.streams.sampling.by_class import class_counts
from tta_bench.streams.sampling.pieces import cut_sizes, slot_by_slot

MAX_SLOTS = 100
DELTA_SLOTS = 10


def rotta_order(labels: np.ndarray, gamma: float, rng: np.random.Generator) -> np.ndarray:
    """All images, in as many slots as classes occur, at most 100."""
    return in_slots(labels, min(len(class_counts(labels)), MAX_SLOTS), gamma, rng)


def delta_order(labels: np.ndarray, concentration: float, rng: np.random.Generator) -> np.ndarray:
    """All images, in 10 slots."""
    return in_slots(labels, DELTA_SLOTS, concentration, rng)


def in_slots(labels: np.ndarray, slots: int, concentration: float, rng: np.random.Generator) -> np.ndarray:
    """All images; the shares of a class over the slots are Dirichlet, the lower the more uneven."""
    counts = class_counts(labels)
    shares = rng.dirichlet(np.full(slots, concentration), len(counts))
    return slot_by_slot(labels, cut_sizes(shares, counts), rng)
