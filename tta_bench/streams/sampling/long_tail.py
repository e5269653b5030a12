"""Long-tailed class frequencies: DELTA's, GLI-TTA's and LAME's. The images are shuffled."""

from __future__ import annotations

import math

import numpy as np

from tta_bench.streams.sampling.by_class import class_counts, draw_of_classes, shuffled_classes
from tta_bench.streams.sampling.no_draw import NoDraw

ZIPF_EXPONENT = 2.0
HEAD, MOST = 0.1, 0.9  # the first tenth of the classes must have less than 90 % of the images
TRIES = 10_000


def delta_long_tail(labels: np.ndarray, factor: float, rng: np.random.Generator) -> np.ndarray:
    """Images with replacement: of class c, ⌊w_c·N⌋ + 1, where w_c ∝ factor^(c/(C−1)) and sums up to 1.

    `factor` is the frequency of the rarest class divided by that of the most frequent one (DELTA: 0.1, 0.05).
    """
    weights = factor ** _positions(len(class_counts(labels)))
    each = np.floor(weights / weights.sum() * len(labels)).astype(int) + 1
    return rng.permutation(draw_of_classes(labels, np.repeat(np.arange(len(each)), each), rng))


def gli_long_tail(
    labels: np.ndarray, imbalance: float, ranks_vary: bool, rng: np.random.Generator
) -> np.ndarray:
    """Images without replacement: ⌊n_max·F^(−r/(C−1))⌋ of the class of rank r, or all that it has.

    Ranks are the order of the classes, or drawn anew (`ranks_vary`) in each call. n_max is the size of the
    largest class.
    """
    queues = shuffled_classes(labels, rng)
    ranks = rng.permutation(len(queues)) if ranks_vary else np.arange(len(queues))
    share = imbalance ** -_positions(len(queues))[ranks]
    most = max(map(len, queues))
    # The small number keeps floor from losing an image where the product is a whole number.
    kept = [queue[: int(most * part + 1e-9)] for queue, part in zip(queues, share, strict=True)]
    return rng.permutation(np.concatenate(kept))


def zipf_problem(classes: int) -> str | None:
    """Why class frequencies cannot be drawn, and the remedy."""
    return None if classes > 1 else "the sampler zipf needs at least two classes. Use other data."


def zipf_long_tail(
    labels: np.ndarray, rng: np.random.Generator, exponent: float = ZIPF_EXPONENT, tries: int = TRIES
) -> np.ndarray:
    """As many images as there are, with replacement; class frequencies follow a Zipf distribution (LAME).

    They are drawn again until the most frequent tenth of the classes has less than 90 % of the images.
    """
    classes = len(class_counts(labels))
    head = -(-classes // round(1 / HEAD))
    for _ in range(tries):
        share = rng.zipf(exponent, classes) * 1.0
        share /= share.sum()
        if np.sort(share)[-head:].sum() < MOST:
            return draw_of_classes(labels, rng.choice(classes, len(labels), p=share), rng)
    raise NoDraw(
        f"imbalanced: in {tries} draws of the sampler zipf, {head} of {classes} classes had at least "
        f"{MOST:.0%} of the images. Use data with more classes, or another sampler."
    )


def mean_share(imbalance: float) -> float:
    """The mean frequency of many classes, relative to the first; `imbalance` is first divided by last."""
    return 1.0 if imbalance == 1 else (1 - 1 / imbalance) / math.log(imbalance)


def _positions(classes: int) -> np.ndarray:
    """0 for the first class to 1 for the last."""
    return np.arange(classes) / max(classes - 1, 1)
