"""SAR's imbalanced label shift (Niu et al., ICLR 2023): in each phase, one class is frequent."""

from __future__ import annotations

import numpy as np

from tta_bench.streams.sampling.by_class import class_counts, draw_of_classes


def ratio_problem(length: int, classes: int) -> str | None:
    """Why a stream of this length cannot have a phase for each class, and the remedy."""
    if length >= classes:
        return None
    return (
        f"SAR's sampler has a phase for each of {classes} classes, and the stream of a domain has {length} "
        "images. Raise `draws` or use more images."
    )


def by_ratio(labels: np.ndarray, ratio: float, length: int, rng: np.random.Generator) -> np.ndarray:
    """`length` images with replacement, in one phase for each class, the classes in random order.

    In its phase a class is `ratio` times as frequent as any other: it has probability R/(R + C − 1).
    """
    classes = len(class_counts(labels))
    ruling = rng.permutation(classes)[np.arange(length) * classes // length]
    others = (ruling + rng.integers(1, max(classes, 2), length)) % classes
    rules = rng.random(length) < ratio / (ratio + classes - 1)
    return draw_of_classes(labels, np.where(rules, ruling, others), rng)
