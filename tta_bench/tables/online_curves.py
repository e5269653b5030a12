"""Accuracy after each batch of a domain, from the correct predictions per batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from pandas import DataFrame


class OnlineCurve(NamedTuple):
    """Accuracy (%) in a domain so far, and the images of the round up to each point."""

    images: list[int]
    accuracy: list[float]


def so_far(rows: DataFrame) -> Iterator[tuple[DataFrame, np.ndarray, np.ndarray]]:
    """Rows of a domain, the images up to each batch, and the accuracies (%) then [rows, batches].

    Where rows have other batches or other numbers of images, as with several domains in a batch, the points
    are those of full batches, and accuracies are interpolated to them.
    """
    groups: Any = rows.groupby(["domain_order", "batch_size"], sort=False)
    for (_, size), own in groups:
        images, sizes = int(own["n"].max()), own.get("images_per_batch")
        ends = np.minimum(np.arange(1, -(-images // size) + 1) * size, images)
        if (own["n"] == images).all() and (sizes is None or sizes.isna().all()):
            hits = np.array(own["correct_per_batch"].tolist(), float)
            yield own, ends, 100 * hits.cumsum(axis=1) / ends
        else:
            yield own, ends, np.array(list(map(_interpolated(ends), *_batches(own))))


def _batches(rows: DataFrame) -> tuple[Iterator[np.ndarray], Iterator[np.ndarray]]:
    """The images, and the correct predictions, of each row up to each of its batches."""
    sizes = rows.get("images_per_batch", [None] * len(rows))
    places = zip(rows["n"], rows["batch_size"], sizes, strict=True)
    ends = (
        np.minimum(np.arange(1, -(-int(n) // size) + 1) * size, n) if found is None else np.cumsum(found)
        for n, size, found in places
    )
    return ends, map(np.cumsum, rows["correct_per_batch"])


def _interpolated(ends: np.ndarray) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """From the images and correct predictions up to each batch to accuracies (%) at shares of the domain."""
    shares = ends / ends[-1]

    def accuracies(images: np.ndarray, correct: np.ndarray) -> np.ndarray:
        seen = images > 0
        return np.interp(shares, images[seen] / images[-1], 100 * correct[seen] / images[seen])

    return accuracies


def mean_curves(rows: DataFrame) -> list[OnlineCurve]:
    """The curves of one method in one round, one per domain in order, averaged over seeds."""
    found = []
    before = 0
    for _, of_domain in rows.groupby("domain_order"):
        (_, ends, accuracies), *_ = so_far(of_domain)
        found.append(OnlineCurve((before + ends).tolist(), accuracies.mean(axis=0).tolist()))
        before += int(ends[-1])
    return found
