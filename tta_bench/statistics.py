"""How sure a number is: its spread over seeds, and whether two methods differ on what both have seen.

Scores are arrays [seeds, domains]. Two methods of one column saw the same images in the same order, so they
are compared pairwise. Seeds and domains are crossed, every seed has every domain: a resample draws seeds and
draws domains, and takes all pairs of the two (the pigeonhole bootstrap, Owen 2007). Rounds are no unit: a
domain that comes again is the same domain.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np

LEVEL = 0.05  # intervals are of 1 − LEVEL
RESAMPLES = 10_000
SEED = 2020
# A bootstrap never leaves the range of what it draws from. Of fewer units than this, all may have one sign
# by chance in more than LEVEL of all cases (2 / 2ⁿ), so Student's t over the units stands in for it.
FEWEST_UNITS = 6


class Spread(NamedTuple):
    """Mean of some seeds and, of several, their standard deviation and half the 95 % interval of the mean."""

    mean: float
    std: float | None = None
    half: float | None = None


class Difference(NamedTuple):
    """How much higher one method scores than another, with its 95 % interval and p-value."""

    value: float
    low: float
    high: float
    p: float

    @property
    def tie(self) -> bool:
        """Whether the interval contains 0."""
        return self.low <= 0 <= self.high


class Rank(NamedTuple):
    """A place in a column; several rows may share it."""

    place: int
    shared: bool

    def __str__(self) -> str:
        return f"{self.place}{'=' * self.shared}"


def spread(values: Sequence[float]) -> Spread:
    """Mean, standard deviation and interval of one number per seed."""
    if len(values) < 2:
        return Spread(fmean(values))
    std = stdev(values)
    return Spread(fmean(values), std, half_interval(std, len(values)))


def half_interval(std: float, count: int) -> float:
    """Half the width of the 95 % interval of a mean, by Student's t."""
    return _t_quantile(count) * std / count**0.5


def compare(ours: np.ndarray, theirs: np.ndarray) -> Difference | None:
    """Our scores minus theirs; None where a single pair of numbers tells nothing of its own spread."""
    differences = np.asarray(ours, float) - np.asarray(theirs, float)
    if differences.size < 2:
        return None
    if max(differences.shape) < FEWEST_UNITS:
        return _by_student(differences)
    return _by_bootstrap(differences)


def ranks(scores: Sequence[np.ndarray], printed: Sequence[str]) -> list[Rank]:
    """The rank of each row: the best and all that are tied with it come first, then the best of the rest …

    Rows are tied if their paired interval contains 0, or if readers see the same number.
    """
    order = sorted(range(len(scores)), key=lambda i: (-float(np.mean(scores[i])), i))
    found: dict[int, Rank] = {}
    while order:
        leader = order[0]
        tier = [i for i in order if _tied(scores, printed, leader, i)]
        found |= dict.fromkeys(tier, Rank(len(found) + 1, len(tier) > 1))
        order = [i for i in order if i not in found]
    return [found[i] for i in range(len(scores))]


def _tied(scores: Sequence[np.ndarray], printed: Sequence[str], leader: int, other: int) -> bool:
    if leader == other or printed[leader] == printed[other]:
        return True
    difference = compare(scores[leader], scores[other])
    return difference is not None and difference.tie


def _by_student(differences: np.ndarray) -> Difference:
    """The paired t-test over the units there are more of, each the mean over the others."""
    units = differences.mean(axis=0 if differences.shape[1] >= differences.shape[0] else 1)
    mean, error = float(units.mean()), float(units.std(ddof=1)) / len(units) ** 0.5
    half = _t_quantile(len(units)) * error
    statistic = abs(mean) / error if error else np.inf if mean else 0.0
    return Difference(mean, mean - half, mean + half, 2 * _t_tail(-statistic, len(units)))


def _by_bootstrap(differences: np.ndarray) -> Difference:
    """Percentiles of the resampled mean, widened as Student's t is beside the normal (Hesterberg 2015)."""
    from scipy.special import ndtr, ndtri

    count = max(differences.shape)
    means = _weights(*differences.shape) @ differences.ravel()
    stretch = (count / (count - 1)) ** 0.5
    tail = float(ndtr(-stretch * _t_quantile(count)))
    low, high = np.quantile(means, [tail, 1 - tail])
    # The p-value at which the interval, so widened, would just reach 0; never 0, as no resampling can tell.
    beyond = (min(np.sum(means <= 0), np.sum(means >= 0)) + 1) / (RESAMPLES + 1)
    p = 2 * _t_tail(float(ndtri(min(beyond, 0.5))) / stretch, count)
    return Difference(float(differences.mean()), float(low), float(high), min(p, 1.0))


@lru_cache(maxsize=32)
def _weights(seeds: int, domains: int) -> np.ndarray:
    """How much every pair counts in each resample; the same for all comparisons of one shape."""
    rng = np.random.default_rng([SEED, seeds, domains])
    drawn = [
        rng.multinomial(count, np.full(count, 1 / count), RESAMPLES) / count for count in (seeds, domains)
    ]
    return np.einsum("bs,bd->bsd", *drawn).reshape(RESAMPLES, seeds * domains)


def _t_quantile(count: int) -> float:
    from scipy.special import stdtrit  # only what has a spread waits for it

    return float(stdtrit(count - 1, 1 - LEVEL / 2))


def _t_tail(statistic: float, count: int) -> float:
    from scipy.special import stdtr

    return float(stdtr(count - 1, statistic))
