"""Which rows of a column are tied; the number of comparisons is proportional to that of the rows.

The estimates are those of `statistics`, for arrays of paired differences.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

import numpy as np

from tta_bench.tables.statistics import (
    FEW_LEVELS,
    FEWEST_IMAGES,
    LEVEL,
    Batches,
    Evidence,
    enough_scores,
    stratum_variance,
    t_quantile,
    two_way_variances,
    welch_freedom,
)

NEAREST = 100  # in each direction; grids with at most one row more are compared completely
MOST_NUMBERS = 2**21  # of differences in memory at once


def ties(found: Sequence[Evidence | None], groups: Sequence[Hashable]) -> list[list[int] | None]:
    """For each row, the rows that are tied with it; None if it has too little data.

    A row is compared with the `NEAREST` rows above and below it in the order of the means: of all rows,
    and of those of its group.
    """
    rows = np.array([i for i, each in enumerate(found) if each is not None], int)
    known = [each for each in found if each is not None]
    pairs = nearest([float(each.scores.mean()) for each in known], [groups[i] for i in rows])
    answers = are_tied(known, pairs)
    tied: dict[int, list[int]] = {int(i): [] for i in rows}
    for one, other in rows[pairs[answers > 0]].tolist():
        tied[one].append(other)
        tied[other].append(one)
    unknown = set(rows[pairs[answers < 0]].ravel().tolist())
    return [None if i in unknown or i not in tied else sorted(tied[i]) for i in range(len(found))]


def nearest(means: Sequence[float], groups: Sequence[Hashable]) -> np.ndarray:
    """The pairs of rows to compare, each once, [pairs, 2]."""
    numbers: dict[Hashable, int] = {}
    group = np.array([numbers.setdefault(each, len(numbers)) for each in groups], int)
    everywhere = np.argsort(means, kind="stable")
    within = np.lexsort((np.array(means), group))
    found = [np.empty((0, 2), int)]
    for step in range(1, min(NEAREST, len(means) - 1) + 1):
        found.append(np.stack([everywhere[:-step], everywhere[step:]], axis=1))
        own = np.stack([within[:-step], within[step:]], axis=1)
        found.append(own[group[own[:, 0]] == group[own[:, 1]]])
    return np.unique(np.sort(np.concatenate(found), axis=1), axis=0)


def are_tied(rows: Sequence[Evidence], pairs: np.ndarray) -> np.ndarray:
    """For each pair of rows: 1 if they are tied, 0 if not, −1 if `statistics.compare` has no answer."""
    answers = np.full(len(pairs), -1)
    kinds: dict[Hashable, list[int]] = defaultdict(list)
    for number, row in enumerate(rows):
        kinds[_kind(row)].append(number)
    place, kind = np.zeros(len(rows), int), np.zeros(len(rows), int)
    for number, members in enumerate(kinds.values()):
        place[members], kind[members] = range(len(members)), number
    same = kind[pairs[:, 0]] == kind[pairs[:, 1]]  # others cannot be paired
    for number, members in enumerate(kinds.values()):
        own = np.flatnonzero(same & (kind[pairs[:, 0]] == number))
        if len(own):
            answers[own] = _of_kind([rows[i] for i in members], place[pairs[own]])
    return answers


def _kind(row: Evidence) -> Hashable:
    """What two rows must have in common to be paired."""
    if row.batches is None:
        return row.scores.shape
    return (row.scores.shape, *((each.hits.shape, each.sizes.tobytes()) for each in row.batches))


def _of_kind(rows: Sequence[Evidence], pairs: np.ndarray) -> np.ndarray:
    """`are_tied` of rows that can be paired."""
    if not enough_scores(rows[0]):
        return np.full(len(pairs), -1)
    images = np.array([row.images for row in rows])
    scores = np.stack([row.scores for row in rows])
    hits = [np.stack(each) for each in zip(*map(_hits, rows), strict=True)]
    size = scores[0].size + sum(each[0].size for each in hits)
    answers = []
    for one, other in (part.T for part in np.array_split(pairs, -(-len(pairs) * size // MOST_NUMBERS))):
        differences = scores[one] - scores[other]
        halves = _halves(differences, [each[one] - each[other] for each in hits], rows[0].batches)
        enough = np.minimum(images[one], images[other]) >= FEWEST_IMAGES
        answers.append(np.where(enough, np.abs(differences.mean(axis=(1, 2))) <= halves, -1))
    return np.concatenate(answers)


def _hits(row: Evidence) -> list[np.ndarray]:
    """The correct predictions of each domain of a single seed."""
    return [] if row.batches is None else [each.hits for each in row.batches]


def _halves(
    differences: np.ndarray, hits: Sequence[np.ndarray], batches: Sequence[Batches] | None
) -> np.ndarray:
    """Half the width of the interval of each pair; `hits` are differences, too, by domain."""
    _, seeds, domains = differences.shape
    if seeds == 1:
        return _of_strata(hits, [each.sizes for each in batches or ()])
    if domains == 1:
        variance = differences[:, :, 0].var(axis=1, ddof=1) / seeds
        return np.asarray(t_quantile(seeds - 1, LEVEL) * np.sqrt(variance))
    return _two_way(differences if seeds <= domains else differences.transpose(0, 2, 1))


def _of_strata(hits: Sequence[np.ndarray], sizes: Sequence[np.ndarray]) -> np.ndarray:
    """The halves of one seed, whose domains are strata of batches."""
    variances = np.array([stratum_variance(*each) for each in zip(hits, sizes, strict=True)])
    total = variances.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = welch_freedom(variances, np.array([len(each) - 1 for each in sizes]))
    return np.where(total > 0, t_quantile(freedom, LEVEL) * np.sqrt(total) / len(hits), 0.0)


def _two_way(tables: np.ndarray) -> np.ndarray:
    """The halves of seeds × domains; factor 1 is the one with fewer levels."""
    few, many = tables.shape[1:]
    first, second = two_way_variances(tables)
    total = first + second
    with np.errstate(divide="ignore", invalid="ignore"):
        own = (first * t_quantile(few - 1, LEVEL) + second * t_quantile(many - 1, LEVEL)) / total
        joint = t_quantile(total**2 / (first**2 / (few - 1) + second**2 / (many - 1)), LEVEL)
    weight = FEW_LEVELS / few**2
    return np.where(total > 0, (weight * own + (1 - weight) * joint) * np.sqrt(total), 0.0)
