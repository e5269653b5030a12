"""Accuracy after each batch of a domain, from the correct predictions per batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from pandas import DataFrame


class OnlineCurve(NamedTuple):
    """Accuracy (%) in a domain so far, and the images of the round up to each point."""

    images: list[int]
    accuracy: list[float]


def so_far(rows: DataFrame) -> Iterator[tuple[DataFrame, np.ndarray, np.ndarray]]:
    """Rows with equal batches, the images up to each batch, and the accuracies (%) then [rows, batches]."""
    groups: Any = rows.groupby(["n", "batch_size"], sort=False)
    for (images, size), own in groups:
        ends = np.minimum(np.arange(1, -(-int(images) // size) + 1) * size, int(images))
        hits = np.array(own["correct_per_batch"].tolist(), float)
        yield own, ends, 100 * hits.cumsum(axis=1) / ends


def mean_curves(rows: DataFrame) -> list[OnlineCurve]:
    """The curves of one method in one round, one per domain in order, averaged over seeds."""
    found = []
    before = 0
    for _, of_domain in rows.groupby("domain_order"):
        (_, ends, accuracies), *_ = so_far(of_domain)
        found.append(OnlineCurve((before + ends).tolist(), accuracies.mean(axis=0).tolist()))
        before += int(ends[-1])
    return found
