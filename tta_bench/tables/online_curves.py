"""Accuracy after each batch of a domain, from the correct predictions per batch."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pandas import DataFrame


class OnlineCurve(NamedTuple):
    """Accuracy (%) in a domain so far, and the images of the round up to each point."""

    images: list[int]
    accuracy: list[float]


def mean_curves(rows: DataFrame) -> list[OnlineCurve]:
    """The curves of one method in one round, one per domain in order, averaged over seeds."""
    found = []
    before = 0
    for _, of_domain in rows.sort_values("domain_order").groupby("domain_order"):
        n, batch = int(of_domain["n"].iloc[0]), int(of_domain["batch_size"].iloc[0])
        hits = [list(accumulate(correct)) for correct in of_domain["correct_per_batch"]]
        ends = [min((i + 1) * batch, n) for i in range(len(hits[0]))]
        means = [sum(seeds) / len(seeds) for seeds in zip(*hits, strict=True)]
        accuracies = [100 * mean / end for mean, end in zip(means, ends, strict=True)]
        found.append(OnlineCurve([before + end for end in ends], accuracies))
        before += n
    return found
