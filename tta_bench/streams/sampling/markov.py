"""UniTTA's stream (Du, Yuan and Huang 2024): a Markov chain over pairs of a domain and a class.

The chain is the product of one over domains and one over classes. A factor stays in state i with probability
a_i = 1 − (1 − a)·I^(i/(n−1)) and otherwise moves to any other state, each as likely. Its stationary
distribution is then π_i ∝ I^(−i/(n−1)), so that the first state is I times as frequent as the last one. No
such chain exists if a = 1, or if (1 − a)·I > 1 − 1/n. Such a factor stays with probability a in every state,
and states are removed when they have had their share of the stream (`markov_capped`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tta_bench.streams.sampling.by_class import class_counts, shuffled_classes
from tta_bench.streams.sampling.markov_capped import capped_chain, capped_pairs

TOLERANCE = 1e-9  # 1/n as a decimal fraction is still taken as i.i.d.


@dataclass(frozen=True)
class Factor:
    """The chain over the domains or over the classes."""

    states: int
    stay: float  # a: the probability that the first state follows itself; 1/n is i.i.d., 1 is one block each
    imbalance: float = 1.0  # I: the first state is as many times as frequent as the last one

    @property
    def valid(self) -> bool:
        """Whether a chain with the stationary distribution exists."""
        leaves = (1 - self.stay) * self.imbalance
        return self.stay < 1 and leaves <= 1 - 1 / self.states + TOLERANCE

    @property
    def frequencies(self) -> np.ndarray:
        """The frequency of each state, relative to the first one."""
        return self.imbalance**-self._positions

    @property
    def stays(self) -> np.ndarray:
        """The probability of each state to follow itself."""
        if not self.valid:
            return np.full(self.states, self.stay)
        return 1 - (1 - self.stay) * self.imbalance**self._positions

    @property
    def cover_images(self) -> float:
        """The expected number of images until every state has come, where a chain exists.

        In a chain without stays it is (n − 1)·H_(n−1); a visit to state i has 1/(1 − a_i) images on average.
        """
        harmonic = float((1 / np.arange(1, self.states)).sum())
        return (self.states - 1) * harmonic * float((1 / (1 - self.stays)).mean())

    @property
    def _positions(self) -> np.ndarray:
        return np.arange(self.states) / max(self.states - 1, 1)


def markov_states(
    domains: Factor, classes: Factor, max_state: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The domain and the class of every image; begins with the first of both.

    If both factors are valid, the stream ends when a pair has occurred `max_state` times and every domain has
    come, for which short streams may need longer. Otherwise each pair has a share of round(max_state · its
    relative frequency), and the stream ends when all shares are used.
    """
    if domains.valid and classes.valid:
        return _until_full(domains, classes, max_state, rng)
    caps = shares(domains, classes, max_state)
    if domains.valid:
        of_class = capped_chain(classes.stay, caps.sum(0), rng)
        return free_chain(domains.stays, len(of_class), rng), of_class
    if classes.valid:
        of_domain = capped_chain(domains.stay, caps.sum(1), rng)
        return of_domain, free_chain(classes.stays, len(of_domain), rng)
    return capped_pairs((domains.stay, classes.stay), caps, rng)


def shares(domains: Factor, classes: Factor, max_state: int) -> np.ndarray:
    """How many images each pair has where a chain does not exist, [domains, classes]."""
    return np.rint(max_state * np.outer(domains.frequencies, classes.frequencies)).astype(int)


def markov_images(
    labels: np.ndarray, of_domain: np.ndarray, of_class: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """The image of every step: the next in a shuffled queue of its domain and class, which starts over."""
    classes = len(class_counts(labels))
    pair = of_domain * classes + of_class
    turn = occurrences(pair)
    found = np.empty(len(pair), int)
    for domain in range(of_domain.max() + 1):
        for k, queue in enumerate(shuffled_classes(labels, rng)):
            here = pair == domain * classes + k
            found[here] = queue[turn[here] % len(queue)]
    return found


def free_chain(stays: np.ndarray, length: int, rng: np.random.Generator) -> np.ndarray:
    """`length` states of a chain that begins in the first; `stays` is below 1 everywhere."""
    states = len(stays)
    if states == 1:
        return np.zeros(length, int)
    runs: list[np.ndarray] = []
    last, have = 0, 0
    while have < length:  # a block of runs at a time
        steps = rng.integers(1, states, 1024)
        visited = (last + np.concatenate([[0], np.cumsum(steps)])) % states
        last = int(visited[-1])
        # A run is about 1/(1 - stay) long, which may be far more than is needed.
        ends = np.cumsum(np.minimum(rng.geometric(1 - stays[visited[:-1]]), length - have))
        runs.append(np.repeat(visited[:-1], np.diff(np.minimum(ends, length - have), prepend=0)))
        have += len(runs[-1])
    return np.concatenate(runs)


def occurrences(values: np.ndarray) -> np.ndarray:
    """How often each entry's value has occurred before it."""
    order = np.argsort(values, kind="stable")
    starts = np.flatnonzero(np.diff(values[order], prepend=values[order][:1] - 1))
    counts = np.diff(np.append(starts, len(values)))
    turn = np.empty(len(values), int)
    turn[order] = np.arange(len(values)) - np.repeat(starts, counts)
    return turn


def _until_full(
    domains: Factor, classes: Factor, max_state: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """States until a pair has occurred `max_state` times and every domain has come."""
    length = domains.states * classes.states * max_state  # by then some pair has occurred so often
    of_domain = free_chain(domains.stays, length, rng)
    while len(np.unique(of_domain)) < domains.states:
        of_domain = free_chain(domains.stays, 2 * len(of_domain), rng)
    of_class = free_chain(classes.stays, len(of_domain), rng)
    full = occurrences(of_domain * classes.states + of_class) == max_state - 1
    all_came = np.unique(of_domain, return_index=True)[1].max()
    end = max(int(np.argmax(full)), int(all_came)) + 1
    return of_domain[:end], of_class[:end]
