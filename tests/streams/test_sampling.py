"""Samplers within a domain: what they keep, how correlated they are, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from tta_bench.streams.sampling import note, rotta
from tta_bench.streams.sampling.by_class import class_counts, sorted_by_class
from tta_bench.streams.sampling.imbalance_ratio import by_ratio, ratio_problem
from tta_bench.streams.sampling.long_tail import (
    delta_long_tail,
    gli_long_tail,
    zipf_long_tail,
    zipf_problem,
)
from tta_bench.streams.sampling.no_draw import NoDraw
from tta_bench.streams.sampling.note import note_order, note_problem
from tta_bench.streams.sampling.pieces import cut_sizes
from tta_bench.streams.sampling.rotta import delta_order, in_slots, rotta_order

Sampler = Callable[[np.ndarray, np.random.Generator], np.ndarray]

PERMUTING: dict[str, Sampler] = {
    "sorted": sorted_by_class,
    **{f"rotta {g}": lambda labels, rng, g=g: rotta_order(labels, g, rng) for g in (0.01, 0.1, 1)},
    **{f"note {g}": lambda labels, rng, g=g: note_order(labels, g, rng) for g in (0.01, 0.1, 1)},
    "delta 0.5": lambda labels, rng: delta_order(labels, 0.5, rng),
}
RESAMPLING: dict[str, Sampler] = {
    "sar": lambda labels, rng: by_ratio(labels, 1000, 2 * len(labels), rng),
    "delta": lambda labels, rng: delta_long_tail(labels, 0.1, rng),
    "gli": lambda labels, rng: gli_long_tail(labels, 10, True, rng),
    "zipf": zipf_long_tail,
}
# Mean number of classes in a batch of 64, for 10 classes; in streams of 2 000 and of 10 000 images.
DISTINCT = {
    "iid": (10.0, 10.0),
    "sorted": (1.26, 1.05),
    "rotta 0.01": (1.6, 1.1),
    "rotta 0.1": (2.4, 1.35),
    "rotta 1": (3.9, 1.6),
    "note 0.01": (1.5, 1.1),
    "note 0.1": (2.1, 1.3),
    "note 1": (3.8, 1.6),
}


def rng_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def in_turn(count: int, classes: int = 10) -> np.ndarray:
    """Labels of which each prefix holds all classes about equally often."""
    return np.arange(count) % classes


def changes(labels: np.ndarray) -> int:
    return int((np.diff(labels) != 0).sum())


def distinct(labels: np.ndarray) -> float:
    return float(np.mean([len(np.unique(labels[i : i + 64])) for i in range(0, len(labels), 64)]))


@pytest.mark.parametrize("name", PERMUTING)
@pytest.mark.parametrize(("count", "classes"), [(2_000, 10), (997, 7), (130, 1)])
def test_orders_hold_every_image_once(name: str, count: int, classes: int) -> None:
    labels = in_turn(count, classes)
    assert np.array_equal(np.sort(PERMUTING[name](labels, rng_of(0))), np.arange(count))


@pytest.mark.parametrize("name", [*PERMUTING, *RESAMPLING])
def test_the_generator_decides_alone(name: str) -> None:
    sampler = (PERMUTING | RESAMPLING)[name]
    labels = in_turn(500)
    np.random.seed(1)
    first = sampler(labels, rng_of(3))
    np.random.seed(2)  # global generators have no influence
    assert np.array_equal(first, sampler(labels, rng_of(3)))
    assert not np.array_equal(first, sampler(labels, rng_of(4)))


@pytest.mark.parametrize("name", DISTINCT)
@pytest.mark.parametrize("place", [0, 1])
def test_distinct_classes_of_a_batch(name: str, place: int) -> None:
    labels = in_turn((2_000, 10_000)[place])
    sampler = PERMUTING.get(name, lambda labels, rng: rng.permutation(len(labels)))
    found = np.mean([distinct(labels[sampler(labels, rng_of(seed))]) for seed in range(5)])
    assert found == pytest.approx(DISTINCT[name][place], rel=0.15)


def test_sorted_changes_class_as_rarely_as_possible() -> None:
    labels = rng_of(0).integers(0, 10, 2_000)
    assert changes(labels[sorted_by_class(labels, rng_of(1))]) == 9


def test_classes_need_not_be_numbered_without_gaps() -> None:
    labels = np.array([5, 900, 5, 17, 900, 17] * 30)
    for sampler in (*PERMUTING.values(), *RESAMPLING.values()):
        assert set(labels[sampler(labels, rng_of(0))]) == {5, 17, 900}


@pytest.mark.parametrize("order", [rotta_order, note_order])
def test_extremes_of_the_dirichlet_orders(order: Callable[..., np.ndarray]) -> None:
    labels = in_turn(2_000)
    even = labels[order(labels, 1e6, rng_of(0))]
    for chunk in even.reshape(10, 200):  # cuts are rounded down: the borders are off by a few
        assert np.abs(class_counts(chunk) - 20).max() <= 5
    found = [changes(labels[order(labels, gamma, rng_of(0))]) for gamma in (1e-3, 0.1, 1e6)]
    assert found == sorted(found)
    assert found[0] < 25


def test_rotta_has_at_most_100_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def noted(labels: np.ndarray, slots: int, *rest: object) -> np.ndarray:
        seen.append(slots)
        return in_slots(labels, slots, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(rotta, "in_slots", noted)
    for classes in (10, 100, 250):
        rotta_order(in_turn(1_000, classes), 0.1, rng_of(0))
    delta_order(in_turn(1_000, 250), 0.1, rng_of(0))
    assert seen == [10, 100, 100, 10]


def test_pieces_of_a_class_sum_up_to_its_images() -> None:
    counts = np.array([7, 1, 300, 33])
    shares = rng_of(0).dirichlet(np.full(50, 0.05), 4)
    shares[1] = np.nextafter(1 / 50, 1)  # the cumulative sum may exceed 1
    sizes = cut_sizes(shares, counts)
    assert sizes.min() >= 0
    assert np.array_equal(sizes.sum(1), counts)


def test_chunks_of_note_have_at_least_10_images() -> None:
    counts = np.full(10, 20)
    for seed in range(50):
        sizes = note._draw(counts, 0.5, rng_of(seed))
        assert np.array_equal(sizes.sum(1), counts)
    labels = np.repeat(np.arange(10), 20)
    order, generator = note_order(labels, 0.5, rng_of(0)), rng_of(0)
    while (sizes := note._draw(counts, 0.5, generator)).sum(0).min() < 10:
        pass  # the same draws as those of `note_order`
    for chunk, size in zip(np.split(order, np.cumsum(sizes.sum(0))[:-1]), sizes.T, strict=True):
        assert np.array_equal(np.bincount(labels[chunk], minlength=10), size)


def test_note_rejects_draws_that_leave_open_chunks_nothing() -> None:
    is_open = np.array([False] * 9 + [True])
    shares = note._shares(is_open, 1e-4, rng_of(0))  # nearly every draw is all in one chunk
    assert np.array_equal(shares, is_open.astype(float))


def test_note_needs_10_images_for_each_class() -> None:
    assert note_problem(100, 10) is None
    problem = note_problem(99, 10)
    assert problem is not None
    assert "NOTE" in problem
    assert "rotta" in problem
    assert note_problem(5_000, 1_000) is not None


def test_note_gives_up_after_a_number_of_tries() -> None:
    with pytest.raises(NoDraw, match=r"3 draws .* larger delta"):
        note_order(in_turn(100), 0.01, rng_of(0), tries=3)


def test_ratio_1_draws_classes_uniformly() -> None:
    labels = in_turn(5_000)
    drawn = np.bincount(labels[by_ratio(labels, 1, 20_000, rng_of(0))])
    assert stats.chisquare(drawn).pvalue > 0.001


def test_a_high_ratio_has_one_class_for_each_phase() -> None:
    labels = in_turn(1_000)
    drawn = labels[by_ratio(labels, 1e12, 2_000, rng_of(0))]
    assert len(drawn) == 2_000
    phases = drawn.reshape(10, 200)
    assert (phases == phases[:, :1]).all()
    assert sorted(phases[:, 0]) == list(range(10))


def test_the_ratio_is_the_share_of_a_phase() -> None:
    labels = in_turn(10_000, 100)
    phases = labels[by_ratio(labels, 99, 50_000, rng_of(0))].reshape(100, 500)
    shares = [np.bincount(phase).max() / 500 for phase in phases]
    assert np.mean(shares) == pytest.approx(0.5, abs=0.01)  # 99 / (99 + 99)


@pytest.mark.parametrize(("ratio", "classes"), [(500_000, 1.7), (1_000, 33), (1, 62)])
def test_published_settings_of_sar(ratio: float, classes: float) -> None:
    """100 draws from each of 1 000 classes with 50 images: 50·(1 − 0.98¹⁰⁰) of each, about 43 000 in all."""
    labels = in_turn(50_000, 1_000)
    drawn = by_ratio(labels, ratio, 100_000, rng_of(0))
    assert len(np.unique(drawn)) == pytest.approx(50_000 * (1 - 0.98**100), abs=250)
    assert distinct(labels[drawn]) == pytest.approx(classes, rel=0.05)


def test_a_stream_shorter_than_its_classes_is_refused() -> None:
    assert ratio_problem(1_000, 1_000) is None
    assert "draws" in str(ratio_problem(999, 1_000))


def test_long_tail_of_delta() -> None:
    labels = in_turn(2_000)
    weights = 0.1 ** (np.arange(10) / 9)
    expected = np.floor(weights / weights.sum() * 2_000) + 1
    drawn = delta_long_tail(labels, 0.1, rng_of(0))
    assert np.array_equal(np.bincount(labels[drawn]), expected)
    assert changes(labels[drawn]) > 1_000  # shuffled


@pytest.mark.parametrize("imbalance", [10, 100, 200])
def test_long_tail_of_gli(imbalance: int) -> None:
    labels = in_turn(2_000)
    drawn = gli_long_tail(labels, imbalance, False, rng_of(0))
    assert len(np.unique(drawn)) == len(drawn)  # without replacement
    expected = [int(200 * imbalance ** (-c / 9) + 1e-9) for c in range(10)]
    assert np.bincount(labels[drawn], minlength=10).tolist() == expected
    assert (expected[0], expected[-1]) == (200, 200 // imbalance)


def test_ranks_of_gli_vary() -> None:
    labels = in_turn(2_000)
    counts = [np.bincount(labels[gli_long_tail(labels, 10, True, rng_of(s))]) for s in range(2)]
    assert sorted(counts[0]) == sorted(counts[1])
    assert counts[0].tolist() != counts[1].tolist()


@pytest.mark.parametrize("classes", [10, 1_000])
def test_zipf_has_a_head_but_not_only_that(classes: int) -> None:
    labels = in_turn(10_000, classes)
    head = -(-classes // 10)
    for seed in range(5):
        drawn = np.bincount(labels[zipf_long_tail(labels, rng_of(seed))], minlength=classes)
        assert drawn.sum() == 10_000
        assert np.sort(drawn)[-head:].sum() < 0.92 * 10_000  # 90 %, and the spread of the draws
        assert drawn.max() > 1.2 * 10_000 / classes


def test_zipf_needs_two_classes() -> None:
    assert "two classes" in str(zipf_problem(1))
    with pytest.raises(NoDraw, match="zipf"):
        zipf_long_tail(np.zeros(100, int), rng_of(0), tries=10)
