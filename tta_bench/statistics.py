"""How sure a number is: 95 % intervals of accuracies and of paired differences, and the ranks they make.

With several seeds, the scores of a row are an array [seeds, domains], both factors random: an interval is
about other seeds and other domains of the same kind. With one seed, domains are fixed strata and batches are
sampled from them: an interval is about other images of the same domains, and says nothing of other seeds.
Two rows of a column saw the same images in the same order, so their difference is taken first, pair by pair.
Formulas, assumptions and simulated coverage: docs/statistics.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np

LEVEL = 0.05  # intervals are of 1 − LEVEL
# Below this much evidence there is no interval, no rank and no p-value.
FEWEST_IMAGES = 256  # of all seeds and domains
FEWEST_SCORES = 9  # seeds × domains; fewer make two-way intervals that are too wide (97 % and more)
FEWEST_BATCHES = 8  # of one seed; of every domain, two
FEW_LEVELS = 3  # over the square of the smaller factor's levels: the weight of Cochran's critical value
TOO_LITTLE = (
    f"too little data: it takes {FEWEST_IMAGES} images, and of one seed {FEWEST_BATCHES} batches (2 in every "
    f"domain), of several seeds and domains {FEWEST_SCORES} pairs of a seed and a domain"
)


class Batches(NamedTuple):
    """The batches of one domain of one seed: hits [turns, batches], and images in each batch.

    Turns are rounds that brought other batches; rounds with the same ones are averaged into one.
    """

    hits: np.ndarray
    sizes: np.ndarray


@dataclass(frozen=True)
class Evidence:
    """What is known of a row in a column, or of the difference of two: accuracies (%) [seeds, domains]."""

    scores: np.ndarray
    images: int  # of all seeds and domains, each round counting once
    batches: tuple[Batches, ...] | None = None  # by domain, of a single seed

    def minus(self, other: Evidence) -> Evidence:
        """The paired difference of two rows."""
        images = min(self.images, other.images)
        return Evidence(self.scores - other.scores, images, _paired(self.batches, other.batches))


class Part(NamedTuple):
    """An independent part of the variance of a mean, and its degrees of freedom."""

    variance: float
    freedom: float


class Estimate(NamedTuple):
    """A mean with the parts of its variance; `cochran` is the weight of Cochran's critical value."""

    value: float
    parts: tuple[Part, ...]
    cochran: float = 0.0

    @property
    def half(self) -> float:
        """Half the width of the 95 % interval."""
        return self.critical(LEVEL) * self.error

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return float(sum(part.variance for part in self.parts)) ** 0.5

    def critical(self, level: float) -> float:
        """How many standard errors an interval of 1 − level extends to each side."""
        parts = [part for part in self.parts if part.variance > 0]
        total = sum(part.variance for part in parts)
        if not total:
            return 0.0
        own = sum(part.variance * _t(part.freedom, level) for part in parts) / total if self.cochran else 0.0
        # Satterthwaite's degrees of freedom; those of strata come with Welch's correction already.
        joint = _t(total**2 / sum(part.variance**2 / part.freedom for part in parts), level)
        return self.cochran * own + (1 - self.cochran) * joint

    @property
    def p(self) -> float:
        """The level at which the interval just reaches 0."""
        if not self.error:
            return 0.0 if self.value else 1.0
        statistic, low, high = abs(self.value) / self.error, -40.0, 0.0  # natural logarithms of levels
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.critical(np.exp(middle)) > statistic else (low, middle)
        return float(np.exp(high))


class Difference(NamedTuple):
    """How much higher one row scores than another, with its 95 % interval and p-value."""

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


def deviation(values: Sequence[float]) -> float | None:
    """The standard deviation of one number per seed; None of a single one."""
    return stdev(values) if len(values) > 1 else None


def estimate(evidence: Evidence) -> Estimate | None:
    """The mean of a row or difference and its variance; None where there is too little data."""
    seeds, domains = evidence.scores.shape
    if evidence.images < FEWEST_IMAGES:
        return None
    if seeds == 1:
        return _of_batches(evidence)
    if domains == 1:
        scores = evidence.scores[:, 0]
        return Estimate(float(scores.mean()), (Part(float(scores.var(ddof=1)) / seeds, seeds - 1),))
    return _two_way(evidence.scores) if evidence.scores.size >= FEWEST_SCORES else None


def compare(ours: Evidence, theirs: Evidence) -> Difference | None:
    """Our scores minus theirs; None where there is too little data, or where they are no pairs."""
    if ours.scores.shape != theirs.scores.shape:
        return None
    found = estimate(ours.minus(theirs))
    if found is None:
        return None
    return Difference(found.value, found.value - found.half, found.value + found.half, found.p)


def ranks(rows: Sequence[Evidence], printed: Sequence[str]) -> list[Rank] | None:
    """The rank of each row, which never gets better as the mean falls; None if there is too little data.

    The best shares its rank with the rows that follow it down to the first that differs from it, which is the
    best of the rest. Rows are tied if their paired interval contains 0, or if readers see the same number.
    """
    order = sorted(range(len(rows)), key=lambda i: (-float(np.mean(rows[i].scores)), i))
    tiers: list[list[int]] = []
    for row in order:
        tied = _tied(rows, printed, tiers[-1][0], row) if tiers else False
        if tied is None:
            return None
        if tied:
            tiers[-1].append(row)
        else:
            tiers.append([row])
    found: dict[int, Rank] = {}
    for tier in tiers:
        found |= dict.fromkeys(tier, Rank(len(found) + 1, len(tier) > 1))
    return [found[i] for i in range(len(rows))]


def holm(values: Sequence[float]) -> list[float]:
    """P-values corrected for their number (Holm 1979): the chance of any false difference stays at LEVEL."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    found, largest = [0.0] * len(values), 0.0
    for place, index in enumerate(order):
        largest = max(largest, min(1.0, (len(values) - place) * values[index]))
        found[index] = largest
    return found


def _tied(rows: Sequence[Evidence], printed: Sequence[str], leader: int, other: int) -> bool | None:
    difference = compare(rows[leader], rows[other])
    if difference is None:
        return None
    return printed[leader] == printed[other] or difference.tie


def _two_way(scores: np.ndarray) -> Estimate:
    """Seeds × domains, both random. The factor with fewer levels keeps its whole mean square.

    V = (MS₁ + max(MS₂ − MSₑ, 0)) / (levels₁ · levels₂) is never below what the smaller factor shows.
    """
    table = scores if scores.shape[0] <= scores.shape[1] else scores.T
    few, many = table.shape
    mean = float(table.mean())
    rows, columns = table.mean(axis=1), table.mean(axis=0)
    residuals = table - rows[:, None] - columns[None] + mean
    first = many * float(rows.var(ddof=1))
    second = few * float(columns.var(ddof=1))
    noise = float((residuals**2).sum()) / ((few - 1) * (many - 1))
    parts = (
        Part(first / table.size, few - 1),
        Part(max(second - noise, 0.0) / table.size, many - 1),
    )
    return Estimate(mean, parts, cochran=FEW_LEVELS / few**2)


def _of_batches(evidence: Evidence) -> Estimate | None:
    """One seed: domains are strata of equal weight, and the batches of each a sample of it."""
    batches = evidence.batches
    if batches is None or any(domain.hits.shape[1] < 2 for domain in batches):
        return None
    if sum(domain.hits.shape[1] for domain in batches) < FEWEST_BATCHES:
        return None
    found = [_of_stratum(domain) for domain in batches]
    total = sum(part.variance for part in found)
    if not total:
        return Estimate(float(evidence.scores.mean()), ())
    # Satterthwaite's estimate is too low where strata have few batches; this one is corrected (Welch 1947).
    freedom = total**2 / sum(part.variance**2 / (part.freedom + 2) for part in found) - 2
    return Estimate(float(evidence.scores.mean()), (Part(total / len(found) ** 2, max(freedom, 1.0)),))


def _of_stratum(domain: Batches) -> Part:
    """The variance of a domain's accuracy (%), by the spread of its batches about it."""
    count, images = domain.hits.shape[1], float(domain.sizes.sum())
    shares = domain.hits.sum(axis=1, keepdims=True) / images
    spread = ((domain.hits - shares * domain.sizes) ** 2).sum(axis=1) * count / (count - 1)
    # Turns see the same images in other batches: their errors may agree entirely, so they are not divided.
    return Part((100 * fmean(np.sqrt(spread)) / images) ** 2, count - 1)


def _paired(
    ours: tuple[Batches, ...] | None, theirs: tuple[Batches, ...] | None
) -> tuple[Batches, ...] | None:
    """The differences of hits, batch by batch; None where the batches are not the same."""
    if ours is None or theirs is None or len(ours) != len(theirs):
        return None
    pairs = list(zip(ours, theirs, strict=True))
    if any(a.hits.shape != b.hits.shape or not np.array_equal(a.sizes, b.sizes) for a, b in pairs):
        return None
    return tuple(Batches(a.hits - b.hits, a.sizes) for a, b in pairs)


def _t(freedom: float, level: float) -> float:
    from scipy.special import stdtrit  # only what has an interval waits for it

    return float(-stdtrit(freedom, level / 2))
