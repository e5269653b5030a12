"""95 % intervals of accuracies and of paired differences, p-values and ranks.

With several seeds, the scores of a row are an array [seeds, domains] of two random factors: an interval is
about other seeds and other domains of the same kind. With one seed, domains are fixed strata and batches are
sampled from them: an interval is about other images of the same domains, not about other seeds. All rows
of a column saw the same images in the same order, so rows are compared by their paired differences.
Formulas, assumptions and simulated coverage: docs/statistics.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import stdev
from typing import Any, NamedTuple

import numpy as np

LEVEL = 0.05  # of significance; intervals have a coverage of 1 − LEVEL
# With less evidence there is no interval, no rank and no p-value.
FEWEST_IMAGES = 256  # over all seeds and domains
FEWEST_SCORES = 9  # seeds × domains; with fewer, two-way intervals are too wide (97 % and more)
FEWEST_BATCHES = 8  # with one seed; and two in every domain
FEW_LEVELS = 3  # divided by the square of the smaller factor's levels: weight of Cochran's critical value
TOO_LITTLE = (
    f"too little data: it takes {FEWEST_IMAGES} images, and of one seed {FEWEST_BATCHES} batches (2 in every "
    f"domain), of several seeds and domains {FEWEST_SCORES} pairs of a seed and a domain"
)


class Batches(NamedTuple):
    """The batches of one domain of one seed: correct predictions [turns, batches], and images per batch.

    Rounds with different batches are separate turns; rounds with the same batches are averaged into one.
    """

    hits: np.ndarray
    sizes: np.ndarray


@dataclass(frozen=True)
class Evidence:
    """The data of a row in a column, or of the difference of two rows: accuracies (%) [seeds, domains]."""

    scores: np.ndarray
    images: int  # over all seeds and domains; an image counts once, not once per round
    batches: tuple[Batches, ...] | None = None  # by domain, with a single seed

    def minus(self, other: Evidence) -> Evidence:
        """The paired difference of two rows."""
        images = min(self.images, other.images)
        return Evidence(self.scores - other.scores, images, _paired(self.batches, other.batches))


class VarianceComponent(NamedTuple):
    """An independent component of the variance of a mean, and its degrees of freedom."""

    variance: float
    freedom: float


class Estimate(NamedTuple):
    """A mean with the components of its variance; `cochran` is the weight of Cochran's critical value."""

    value: float
    components: tuple[VarianceComponent, ...]
    cochran: float = 0.0

    @property
    def half(self) -> float:
        """Half the width of the 95 % interval."""
        return float(self.critical(LEVEL) * self.error)

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return float(sum(component.variance for component in self.components)) ** 0.5

    def critical(self, level: float) -> float:
        """Half the width of an interval of coverage 1 − level, in standard errors."""
        total = sum(variance for variance, _ in self.components)
        if not total:
            return 0.0
        own = sum(variance * t_quantile(freedom, level) for variance, freedom in self.components) / total
        # Satterthwaite's degrees of freedom; those of strata already have Welch's correction.
        joint = t_quantile(
            total**2 / sum(variance**2 / freedom for variance, freedom in self.components), level
        )
        return float(self.cochran * own + (1 - self.cochran) * joint)

    @property
    def p(self) -> float:
        """The level at which the interval just reaches 0, found by bisection of its logarithm."""
        if not self.error:
            return 0.0 if self.value else 1.0
        statistic, low, high = abs(self.value) / self.error, -40.0, 0.0  # natural logarithms of levels
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.critical(np.exp(middle)) > statistic else (low, middle)
        return float(np.exp(high))


class Difference(NamedTuple):
    """The difference of two rows, with its 95 % interval and p-value."""

    value: float
    low: float
    high: float
    p: float

    @property
    def tie(self) -> bool:
        """Whether the interval contains 0."""
        return self.low <= 0 <= self.high


class Rank(NamedTuple):
    """The rank of a row in a column; several rows may share it."""

    place: int
    shared: bool

    def __str__(self) -> str:
        return f"{self.place}{'=' * self.shared}"


def deviation(values: Sequence[float]) -> float | None:
    """The standard deviation over seeds; None for a single seed."""
    return stdev(values) if len(values) > 1 else None


def estimate(evidence: Evidence) -> Estimate | None:
    """The mean of a row or difference with its variance; None with too little data."""
    if evidence.images < FEWEST_IMAGES or not enough_scores(evidence):
        return None
    seeds, domains = evidence.scores.shape
    if seeds == 1:
        return _of_batches(evidence.scores, evidence.batches or ())
    if domains == 1:
        scores = evidence.scores[:, 0]
        return Estimate(
            float(scores.mean()), (VarianceComponent(float(scores.var(ddof=1)) / seeds, seeds - 1),)
        )
    return _two_way(evidence.scores)


def enough_scores(evidence: Evidence) -> bool:
    """Whether there are enough batches or scores for an interval, however many images these have."""
    seeds, domains = evidence.scores.shape
    if seeds > 1:
        return domains == 1 or evidence.scores.size >= FEWEST_SCORES
    counts = [len(domain.sizes) for domain in evidence.batches or ()]
    return min(counts, default=0) >= 2 and sum(counts) >= FEWEST_BATCHES


def compare(ours: Evidence, theirs: Evidence) -> Difference | None:
    """Our scores minus theirs; None with too little data, or if the scores cannot be paired."""
    found = _difference(ours, theirs)
    if found is None:
        return None
    return Difference(found.value, found.value - found.half, found.value + found.half, found.p)


def is_tie(ours: Evidence, theirs: Evidence) -> bool | None:
    """Whether the interval of the difference contains 0, which is faster than `compare`; None as there."""
    found = _difference(ours, theirs)
    return None if found is None else abs(found.value) <= found.half


def _difference(ours: Evidence, theirs: Evidence) -> Estimate | None:
    return estimate(ours.minus(theirs)) if ours.scores.shape == theirs.scores.shape else None


def ranks(rows: Sequence[Evidence], printed: Sequence[str]) -> list[Rank] | None:
    """The rank of each row; a row with a lower mean never has a better rank. None with too little data.

    In the order of their means, rows share the rank of the best row until the first that is not tied with it;
    that row is the best of the rest, and so on. Two rows are tied if the interval of their paired difference
    contains 0, or if their printed numbers are equal.
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
    """P-values corrected for their number (Holm 1979), so that the family-wise error rate stays at LEVEL."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    found: dict[int, float] = {}
    largest = 0.0
    for place, index in enumerate(order):
        largest = max(largest, min(1.0, (len(values) - place) * values[index]))
        found[index] = largest
    return [found[index] for index in range(len(values))]


def _tied(rows: Sequence[Evidence], printed: Sequence[str], leader: int, other: int) -> bool | None:
    tie = is_tie(rows[leader], rows[other])
    return None if tie is None else tie or printed[leader] == printed[other]


def _two_way(scores: np.ndarray) -> Estimate:
    """Seeds × domains, both random; factor 1 is the one with fewer levels.

    V = (MS₁ + max(MS₂ − MSₑ, 0)) / (levels₁ · levels₂) is never below the variance from factor 1 alone.
    """
    table = scores if scores.shape[0] <= scores.shape[1] else scores.T
    few, many = table.shape
    first, second = two_way_variances(table)
    components = (VarianceComponent(float(first), few - 1), VarianceComponent(float(second), many - 1))
    return Estimate(float(table.mean()), components, cochran=FEW_LEVELS / few**2)


def two_way_variances(tables: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The variance components of the means of tables [..., few, many], from each of their two factors."""
    few, many = tables.shape[-2:]
    rows, columns = tables.mean(axis=-1), tables.mean(axis=-2)
    residuals = tables - rows[..., None] - columns[..., None, :] + tables.mean(axis=(-2, -1))[..., None, None]
    first, second = many * rows.var(axis=-1, ddof=1), few * columns.var(axis=-1, ddof=1)
    noise = (residuals**2).sum(axis=(-2, -1)) / ((few - 1) * (many - 1))
    return first / (few * many), np.maximum(second - noise, 0.0) / (few * many)


def _of_batches(scores: np.ndarray, batches: Sequence[Batches]) -> Estimate:
    """One seed: domains are strata of equal weight, and batches are samples from their domain."""
    variances = np.array([stratum_variance(*domain) for domain in batches])
    total = float(variances.sum())
    if not total:
        return Estimate(float(scores.mean()), ())
    freedom = float(welch_freedom(variances, np.array([len(domain.sizes) - 1 for domain in batches])))
    return Estimate(float(scores.mean()), (VarianceComponent(total / len(batches) ** 2, freedom),))


def stratum_variance(hits: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The variance of a domain's accuracy (%), from the spread of its batches; hits [..., turns, batches]."""
    count, images = len(sizes), float(sizes.sum())
    shares = hits.sum(axis=-1, keepdims=True) / images
    spread = ((hits - shares * sizes) ** 2).sum(axis=-1) * count / (count - 1)
    # Turns see the same images, so their errors may be fully correlated: averaging them reduces nothing.
    return np.asarray((100 * np.sqrt(spread).mean(axis=-1) / images) ** 2)


def welch_freedom(variances: np.ndarray, freedoms: np.ndarray) -> np.ndarray:
    """The degrees of freedom of a sum of variances [strata, ...].

    Satterthwaite's estimate is too low if strata have few batches; this is Welch's correction (1947).
    """
    parts = variances.T**2 / (freedoms + 2)
    return np.maximum(variances.sum(axis=0) ** 2 / parts.sum(axis=-1) - 2, 1.0)


def _paired(
    ours: tuple[Batches, ...] | None, theirs: tuple[Batches, ...] | None
) -> tuple[Batches, ...] | None:
    """The differences of each pair of batches; None if the batches are not the same."""
    if ours is None or theirs is None:
        return None
    pairs = list(zip(ours, theirs, strict=True))
    if any(a.hits.shape != b.hits.shape or not np.array_equal(a.sizes, b.sizes) for a, b in pairs):
        return None
    return tuple(Batches(a.hits - b.hits, a.sizes) for a, b in pairs)


def t_quantile(freedom: Any, level: float) -> Any:
    """Student's quantile that leaves `level` / 2 above it."""
    from scipy.special import stdtrit  # slow to import, and only intervals need it

    return -stdtrit(freedom, level / 2)
