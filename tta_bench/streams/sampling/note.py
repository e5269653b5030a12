"""NOTE's Dirichlet order (Gong et al., NeurIPS 2022): as many chunks as classes, kept about equally large.

A chunk that has its share of the images gets no further class, and every chunk must have 10 images in the
end. So there must be 10 images for each class, and with few more than that hardly any draw succeeds.
"""

from __future__ import annotations

import numpy as np

from tta_bench.streams.sampling.by_class import class_counts
from tta_bench.streams.sampling.no_draw import NoDraw
from tta_bench.streams.sampling.pieces import cut_sizes, slot_by_slot

MIN_CHUNK = 10
TRIES = 1_000


def note_problem(count: int, classes: int) -> str | None:
    """Why this many images of this many classes cannot be ordered, and the remedy."""
    if count >= MIN_CHUNK * classes:
        return None
    return (
        f"NOTE's sampler needs {MIN_CHUNK} images for each class: {MIN_CHUNK * classes} for {classes} "
        f"classes, and there are {count}. Use more images, or `sampler: rotta`."
    )


def note_order(labels: np.ndarray, delta: float, rng: np.random.Generator, tries: int = TRIES) -> np.ndarray:
    """All images, chunk by chunk; `NoDraw` if `tries` draws leave a chunk with fewer than 10 images."""
    counts = class_counts(labels)
    if problem := note_problem(len(labels), len(counts)):
        raise NoDraw(f"correlated: {problem}")
    for _ in range(tries):
        sizes = _draw(counts, delta, rng)
        if sizes.sum(0).min() >= MIN_CHUNK:
            return slot_by_slot(labels, sizes, rng)
    raise NoDraw(
        f"correlated: in {tries} draws of NOTE's sampler, a chunk had fewer than {MIN_CHUNK} of "
        f"{len(labels)} images. Use more images, a larger delta, or `sampler: rotta`."
    )


def _draw(counts: np.ndarray, delta: float, rng: np.random.Generator) -> np.ndarray:
    """The sizes of the pieces of every class in every chunk."""
    chunks = len(counts)
    sizes = np.zeros((chunks, chunks), int)
    held = np.zeros(chunks, int)
    for k in range(chunks):
        shares = _shares(held < counts.sum() / chunks, delta, rng)
        sizes[k] = cut_sizes(shares[None], counts[k : k + 1])[0]
        held += sizes[k]
    return sizes


def _shares(is_open: np.ndarray, delta: float, rng: np.random.Generator) -> np.ndarray:
    """Dirichlet shares of the chunks that are open; a draw that leaves them nothing is rejected.

    Some chunk is always open, because the classes so far have fewer images than all chunks together.
    """
    while True:
        shares = np.where(is_open, rng.dirichlet(np.full(len(is_open), delta)), 0)
        if shares.sum() > 0:
            return shares / shares.sum()
