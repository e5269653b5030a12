"""Classes cut into pieces, and the pieces put together slot by slot: what all Dirichlet orders share."""

from __future__ import annotations

import numpy as np

from tta_bench.streams.sampling.by_class import sorted_by_class


def cut_sizes(shares: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The sizes of the pieces, [classes, slots]: class k is cut at ⌊cumsum(shares[k])·n_k⌋."""
    ends = np.floor(np.cumsum(shares, axis=1) * counts[:, None]).astype(int)
    ends[:, -1] = counts  # rounding must not lose the last image
    return np.diff(np.minimum(ends, counts[:, None]), axis=1, prepend=0)


def slot_by_slot(labels: np.ndarray, sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """All images, one slot after the other; in a slot, the pieces of its classes in random order."""
    classes, slots = sizes.shape
    slot = np.repeat(np.tile(np.arange(slots), classes), sizes.ravel())
    turn = np.repeat(rng.random(sizes.shape).ravel(), sizes.ravel())
    return sorted_by_class(labels, rng)[np.lexsort((turn, slot))]  # stable: pieces stay together
