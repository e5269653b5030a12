"""The product of two chains; a pair is removed when it has had its share, and the last one ends the stream.

The probabilities of the pairs that are left are scaled up to a sum of 1. If none of them can be reached,
because a chain that never leaves its state (a = 1) has used all of it, the next pair in order follows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

BLOCK = 4096
REJECTIONS = 64  # then the probabilities of all pairs are computed, which takes longer
Pair = tuple[int, int]


def capped_chain(stay: float, caps: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The states of one chain; state i occurs caps[i] times."""
    return capped_pairs((stay, 1.0), caps[:, None], rng)[0]


def capped_pairs(
    stays: tuple[float, float], caps: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The states of both chains; the pair (i, j) occurs caps[i, j] times."""
    left = caps.copy()
    found = np.empty((caps.sum(), 2), int)
    uniform = _uniform(rng)
    here = (0, 0) if left[0, 0] else _next_in_order((0, 0), left)
    for step in range(len(found)):
        found[step] = here
        left[here] -= 1
        if step + 1 < len(found):
            here = _next(here, left, stays, uniform)
    return found[:, 0], found[:, 1]


def _next(here: Pair, left: np.ndarray, stays: tuple[float, float], uniform: Iterator[float]) -> Pair:
    """The next pair: draws that hit a removed pair are rejected, which scales the others' probabilities."""
    rows, columns = left.shape
    for _ in range(REJECTIONS):
        i, j = _move(here[0], rows, stays[0], next(uniform)), _move(here[1], columns, stays[1], next(uniform))
        if left[i, j]:
            return i, j
    weights = np.outer(_row(here[0], rows, stays[0]), _row(here[1], columns, stays[1])) * (left > 0)
    if weights.sum() == 0:
        return _next_in_order(here, left)
    ends = np.cumsum(weights)
    chosen = int(np.searchsorted(ends, next(uniform) * ends[-1], side="right"))
    return chosen // columns, chosen % columns


def _move(state: int, states: int, stay: float, chance: float) -> int:
    """The state after this one, for a chance between 0 and 1."""
    if chance < stay or states == 1:
        return state
    other = min(int((chance - stay) / (1 - stay) * (states - 1)), states - 2)
    return other + (other >= state)


def _row(state: int, states: int, stay: float) -> np.ndarray:
    """The transition probabilities of a state."""
    if states == 1:
        return np.ones(1)
    row = np.full(states, (1 - stay) / (states - 1))
    row[state] = stay
    return row


def _next_in_order(here: Pair, left: np.ndarray) -> Pair:
    """The first pair after this one that is left, starting over at the end."""
    columns = left.shape[1]
    open_pairs = np.flatnonzero(left)
    place = here[0] * columns + here[1]
    chosen = int(open_pairs[np.searchsorted(open_pairs, place) % len(open_pairs)])
    return chosen // columns, chosen % columns


def _uniform(rng: np.random.Generator) -> Iterator[float]:
    """Random numbers between 0 and 1, drawn many at a time."""
    while True:
        yield from rng.random(BLOCK).tolist()
