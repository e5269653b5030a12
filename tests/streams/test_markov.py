"""UniTTA's chain: stationary distribution, stays, shares, and the queues that images come from."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy import stats

from tta_bench.streams.sampling.markov import Factor, free_chain, markov_images, markov_states, occurrences
from tta_bench.streams.sampling.markov_capped import capped_chain


def rng_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize(
    ("factor", "valid"),
    [
        (Factor(10, 0.95), True),
        (Factor(10, 0.1), True),  # i.i.d.
        (Factor(15, 0.067), True),
        (Factor(10, 0.05), False),  # less than i.i.d.
        (Factor(10, 0.95, 10), True),
        (Factor(10, 0.1, 10), False),
        (Factor(10, 1.0), False),
        (Factor(15, 0.85, 5), True),
        (Factor(15, 0.67, 5), False),
        (Factor(1, 1.0), False),
    ],
)
def test_which_factors_have_a_chain(factor: Factor, valid: bool) -> None:
    assert factor.valid == valid


@pytest.mark.parametrize("factor", [Factor(10, 0.95, 10), Factor(15, 0.85, 5), Factor(10, 0.1)])
def test_stays_and_frequencies_within_three_sigma(factor: Factor) -> None:
    states = free_chain(factor.stays, 400_000, rng_of(0))
    stayed = states[1:] == states[:-1]
    for state, stay in enumerate(factor.stays):
        here = stayed[states[:-1] == state]
        assert abs(here.mean() - stay) < 3 * np.sqrt(stay * (1 - stay) / len(here))
    share = np.bincount(states, minlength=factor.states) / len(states)
    # Runs, not images, are independent: the effective number of images is smaller by (1 + a)/(1 - a).
    effective = len(states) * (1 - factor.stay) / (1 + factor.stay)
    expected = factor.frequencies / factor.frequencies.sum()
    assert np.all(np.abs(share - expected) < 3 * np.sqrt(expected * (1 - expected) / effective))
    assert factor.frequencies[0] / factor.frequencies[-1] == pytest.approx(factor.imbalance)


def test_a_chain_without_correlation_is_iid() -> None:
    states = free_chain(Factor(10, 0.1).stays, 100_000, rng_of(1))
    pairs = np.bincount(states[:-1] * 10 + states[1:], minlength=100)
    assert stats.chisquare(pairs).pvalue > 0.001


def test_valid_factors_end_when_a_pair_is_full() -> None:
    of_domain, of_class = markov_states(Factor(5, 0.85), Factor(10, 0.9), 200, rng_of(0))
    counts = np.bincount(of_domain * 10 + of_class, minlength=50)
    assert counts.max() == 200
    assert (counts == 200).sum() == 1
    assert counts[of_domain[-1] * 10 + of_class[-1]] == 200
    assert (of_domain[0], of_class[0]) == (0, 0)


@pytest.mark.parametrize("stay", [0.1, 0.9, 1.0])
def test_without_a_chain_every_pair_has_its_share(stay: float) -> None:
    domains, classes = Factor(4, 1.0, 5), Factor(10, stay, 10 if stay < 1 else 1)
    assert not domains.valid
    of_domain, of_class = markov_states(domains, classes, 40, rng_of(0))
    caps = np.rint(40 * np.outer(domains.frequencies, classes.frequencies)).astype(int)
    found = np.bincount(of_domain * 10 + of_class, minlength=40).reshape(4, 10)
    if classes.valid:  # only domains have shares
        assert np.array_equal(found.sum(1), caps.sum(1))
    else:
        assert np.array_equal(found, caps)
    assert (np.diff(of_domain) != 0).sum() == 3  # a = 1: one domain after the other
    assert of_domain.tolist() == sorted(of_domain)


def test_classes_in_blocks_over_domains_that_alternate() -> None:
    of_domain, of_class = markov_states(Factor(5, 0.2), Factor(10, 1.0), 20, rng_of(0))
    assert of_class.tolist() == sorted(of_class)
    assert np.bincount(of_class).tolist() == [100] * 10
    assert (np.diff(of_domain) != 0).mean() == pytest.approx(0.8, abs=0.05)


def test_the_probabilities_of_removed_states_go_to_the_others() -> None:
    """From state 0, with state 3 used up: 0.4 to stay and 0.2 to each other, scaled up to 1."""
    stays, after = 0.4, np.zeros(4)
    for seed in range(2_000):
        states = capped_chain(stays, np.array([50, 50, 50, 0]), rng_of(seed))
        after[states[1]] += 1
    expected = np.array([0.4, 0.2, 0.2, 0]) / 0.8 * 2_000
    assert after[3] == 0
    assert stats.chisquare(after[:3], expected[:3]).pvalue > 0.001


def test_images_come_from_queues_that_start_over() -> None:
    labels = np.array([3, 8, 3, 8, 3])
    of_domain, of_class = np.zeros(12, int), np.array([0, 1] * 6)
    found = markov_images(labels, of_domain, of_class, rng_of(0))
    assert (labels[found[0::2]] == 3).all()
    assert (labels[found[1::2]] == 8).all()
    assert sorted(found[0:6:2]) == [0, 2, 4]  # all three before one comes again
    assert np.array_equal(found[0:6:2], found[6:12:2])


def test_queues_of_domains_differ() -> None:
    labels = np.zeros(50, int)
    both = markov_images(labels, np.repeat([0, 1], 50), np.zeros(100, int), rng_of(0))
    assert sorted(both[:50]) == sorted(both[50:]) == list(range(50))
    assert not np.array_equal(both[:50], both[50:])


def test_occurrences() -> None:
    assert occurrences(np.array([4, 4, 1, 4, 1])).tolist() == [0, 1, 0, 2, 1]
    assert occurrences(np.array([], int)).tolist() == []


def test_one_domain() -> None:
    of_domain, of_class = markov_states(Factor(1, 1.0), Factor(10, 0.5), 30, rng_of(0))
    assert set(of_domain) == {0}
    assert len(of_class) == 300


def test_a_chain_that_hardly_moves_takes_no_more_memory_than_its_length() -> None:
    """Before: a block of runs of about 1/(1 - stay) images was made, of which a thousandth was used."""
    tracemalloc.start()
    states = free_chain(Factor(2, 1 - 1e-9).stays, 10_000, rng_of(0))
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()
    assert (len(states), set(states)) == (10_000, {0})


def test_runs_that_are_cut_give_the_same_states() -> None:
    """A shorter chain is the beginning of a longer one, wherever a run is cut."""
    for stay in (0.5, 0.99, 0.9999):
        long = free_chain(Factor(3, stay).stays, 20_000, rng_of(4))
        for length in (1, 7, 999, 19_999):
            assert np.array_equal(free_chain(Factor(3, stay).stays, length, rng_of(4)), long[:length])


@pytest.mark.parametrize("factor", [Factor(3, 0.99), Factor(15, 0.85), Factor(15, 0.85, 5), Factor(2, 0.9)])
def test_the_time_until_every_state_has_come(factor: Factor) -> None:
    found = []
    for seed in range(400):
        states = free_chain(factor.stays, 100 * round(factor.cover_images), rng_of(seed))
        found.append(np.unique(states, return_index=True)[1].max())
    assert np.mean(found) == pytest.approx(factor.cover_images, rel=0.2)
