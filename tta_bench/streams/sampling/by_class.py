"""Images grouped by class: the sorted order, and what other samplers build on."""

from __future__ import annotations

import numpy as np


def sorted_by_class(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """All images, one class after the other; the images of a class are in random order."""
    shuffled = rng.permutation(len(labels))
    return shuffled[np.argsort(labels[shuffled], kind="stable")]


def shuffled_classes(labels: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """The images of each class that occurs, in random order; classes in the order of their numbers."""
    return np.split(sorted_by_class(labels, rng), np.cumsum(class_counts(labels))[:-1])


def class_counts(labels: np.ndarray) -> np.ndarray:
    """The number of images of each class that occurs."""
    return np.unique(labels, return_counts=True)[1]


def draw_of_classes(labels: np.ndarray, wanted: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """An image for each entry of `wanted`, uniform within the class and with replacement.

    `wanted` counts the classes that occur: 0 is the first of them.
    """
    counts = class_counts(labels)
    first = np.cumsum(counts) - counts
    return np.argsort(labels, kind="stable")[first[wanted] + rng.integers(counts[wanted])]
