"""Ties of many rows at once: which rows are compared, and that each answer is that of one pair."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest

from tests.tables.test_statistics import grid, one_seed
from tta_bench.tables.statistics import Batches, Evidence, is_tie
from tta_bench.tables.ties import NEAREST, are_tied, nearest, ties


@pytest.mark.parametrize("shape", [(3, 15), (15, 3), (5, 5), (3, 1), (2, 3)])
def test_ties_of_several_seeds_are_those_of_each_pair(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    seeds, domains = rng.normal(size=(shape[0], 1)), rng.normal(size=(1, shape[1]))
    rows = [grid(50 + rng.normal() + seeds + domains + 0.5 * rng.normal(size=shape)) for _ in range(30)]
    _agree([*rows, rows[0], grid(rows[0].scores, images=10), grid(rows[0].scores[:, :-1])])


@pytest.mark.parametrize("turns", [1, 3])
@pytest.mark.parametrize("batches", [1, 2, 10])
def test_ties_of_one_seed_are_those_of_each_pair(turns: int, batches: int) -> None:
    rng = np.random.default_rng(0)
    rows = [_of_turns(rng.integers(20, 60, size=(4, turns, batches)) + rng.normal()) for _ in range(20)]
    fewer = one_seed([[40, 41, 42]] * 4)
    _agree([*rows, rows[0], fewer, replace(rows[0], images=10), replace(rows[0], batches=None)])


def _of_turns(hits: np.ndarray) -> Evidence:
    """One seed with hits by domain, turn and batch."""
    sizes = np.full(hits.shape[2], 64)
    scores = 100 * hits.sum(axis=2).mean(axis=1) / sizes.sum()
    return Evidence(scores[None], 10_000, tuple(Batches(domain, sizes) for domain in hits))


def _agree(rows: list[Evidence]) -> None:
    """Compare `are_tied` with `is_tie`."""
    pairs = list(combinations(range(len(rows)), 2))
    expected = [is_tie(rows[i], rows[j]) for i, j in pairs]
    answers = are_tied(rows, np.array(pairs)).tolist()
    assert [None if answer < 0 else bool(answer) for answer in answers] == expected


def test_a_usual_grid_is_compared_completely() -> None:
    rng = np.random.default_rng(0)
    pairs = nearest(rng.normal(size=NEAREST + 1).tolist(), rng.integers(0, 4, NEAREST + 1).tolist())
    assert set(map(tuple, pairs.tolist())) == set(combinations(range(NEAREST + 1), 2))


def test_comparisons_grow_in_proportion_to_the_rows() -> None:
    rng = np.random.default_rng(0)
    counts = [
        len(nearest(rng.normal(size=rows).tolist(), [place // 12 for place in range(rows)]))
        for rows in (500, 1000, 2000, 4000)
    ]
    assert counts[-1] <= (NEAREST + 11 / 2) * 4000, "rows near it overall, and those of its group"
    assert all(larger / smaller < 2.2 for smaller, larger in pairwise(counts))


def test_a_row_is_compared_with_its_group_and_the_rows_next_to_it_in_accuracy() -> None:
    means = [50 + place / 100 for place in range(400)]
    groups = [place % 40 for place in range(400)]
    near = {frozenset(pair) for pair in nearest(means, groups).tolist()}
    assert all(frozenset((0, other)) in near for other in range(40, 400, 40))
    assert frozenset((0, NEAREST)) in near
    assert frozenset((0, NEAREST + 1)) not in near


def test_ties_name_the_rows_of_the_table() -> None:
    rng = np.random.default_rng(0)
    low, high = (grid(mean + rng.normal(size=(3, 15))) for mean in (40, 60))
    assert ties([high, None, low, high, low], "aabbb") == [[3], None, [4], [0], [2]]
    assert ties([high, None, grid(high.scores, images=10)], "aaa") == [None, None, None]
    assert ties([None, high], "aa") == [None, []]
    assert ties([None, None], "aa") == [None, None]
