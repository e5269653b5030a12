"""The built-in scenarios: what each one plans and arranges. The contract suite tests what all must do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tta_bench.api import Domain, Scenario, Stream, StreamSchedule
from tta_bench.corruptions.composed import parts_of
from tta_bench.corruptions.sets import IMAGENET_C_15
from tta_bench.plugins import registry
from tta_bench.streams.continual import Continual
from tta_bench.streams.correlated import Correlated
from tta_bench.streams.crossfade import Crossfade
from tta_bench.streams.gradual import Gradual
from tta_bench.streams.imbalanced import Imbalanced
from tta_bench.streams.markov import Markov
from tta_bench.streams.mixed import Mixed
from tta_bench.streams.sampling.no_draw import NoDraw
from tta_bench.testing.small_streams import CLASSES, DOMAINS, LABELS, pairs_of, stream_of

DOCS = Path(__file__).parents[2] / "docs"
ALL_15 = tuple(Domain(name, 5) for name in IMAGENET_C_15)
# Every sampler of every scenario, and a few other settings.
SETTINGS: list[Scenario] = [
    Mixed(),
    *(Correlated(sampler=name, mixed=mixed) for name in ("sorted", "rotta", "delta") for mixed in (0, 1)),
    *(Correlated(sampler="note", gamma=0.5, mixed=mixed) for mixed in (False, True)),
    *(Imbalanced(sampler=name) for name in ("sar", "delta", "gli", "zipf")),
    Imbalanced(sampler="delta", correlation="delta", gamma=0.5),
    Imbalanced(sampler="gli", ranks="varying", correlation="rotta"),
    Gradual(),
    Gradual(first_from_the_top=True),
    Markov(),
    Markov(domain_stay=1.0, class_stay="iid", class_imbalance=10),
    Markov(domain_stay="iid", domain_imbalance=5, class_stay=1.0),
    Crossfade(steps=4, images=50),
]
NAMES = [f"{type(each).__name__}-{number}" for number, each in enumerate(SETTINGS)]


def domains_of(stream: Stream, index: int = 0) -> np.ndarray:
    """The number of the visit of each image of a segment."""
    return stream.pairs(1, index)[:, 0]


def labels_of(stream: Stream, index: int = 0) -> np.ndarray:
    """The label of each image of a segment."""
    return stream.labels[stream.pairs(1, index)[:, 1]]


def changes(values: np.ndarray) -> int:
    return int((np.diff(values) != 0).sum())


def schedule_of(scenario: Scenario, domains: tuple[Domain, ...] = ALL_15) -> list[tuple[str, int]]:
    visits = StreamSchedule(domains, 1, 0, scenario).visits(1)
    return [(visit.domain.corruption, visit.domain.severity) for visit in visits]


@pytest.mark.parametrize("scenario", SETTINGS, ids=NAMES)
def test_every_setting_meets_the_contract_of_streams(scenario: Scenario) -> None:
    stream = stream_of(scenario)
    first, again = pairs_of(stream), pairs_of(stream_of(scenario))
    assert first == again
    assert first != pairs_of(stream_of(scenario, seed=2))
    assert scenario.problems(len(LABELS), CLASSES, DOMAINS, 16) == []
    joined = pairs_of(stream_of(scenario, straddle=True))
    assert joined == [[image for segment in first for image in segment]]
    if scenario.resamples:
        return
    visits = stream.schedule.visits(1)
    everything = sorted((*visit.place, image) for visit in visits for image in range(len(LABELS)))
    assert sorted(joined[0]) == everything


@pytest.mark.parametrize("scenario", SETTINGS, ids=NAMES)
def test_every_domain_has_images(scenario: Scenario) -> None:
    stream = stream_of(scenario)
    for index, segment in enumerate(stream.schedule.segments(1)):
        assert set(domains_of(stream, index)) == set(range(len(segment.visits)))


@pytest.mark.parametrize("name", registry.names("streams"))
def test_registered_scenarios_have_defaults_that_run(name: str) -> None:
    scenario = registry.load("streams", name)()
    assert sum(len(batch) for batch in stream_of(scenario).batches(1, 0)) > 0


@pytest.mark.parametrize("name", registry.built_in("streams"))
def test_the_page_has_a_picture_of_each_scenario(name: str) -> None:
    pictures = re.findall(rf"\]\((figures/stream-{name}[\w-]*\.png)\)", (DOCS / "streams.md").read_text())
    assert pictures
    assert all((DOCS / picture).is_file() for picture in pictures)


def test_mixed_batches_hold_many_domains() -> None:
    stream = stream_of(Mixed())
    assert len(stream.schedule.segments(1)) == 1
    assert all(len(set(batch[:, 0])) == 3 for batch in stream.batches(1, 0))


@pytest.mark.parametrize(
    ("scenario", "domains"), [(Mixed(), DOMAINS[:1]), (Gradual(severities=[5]), DOMAINS)]
)
def test_special_cases_equal_continual(scenario: Scenario, domains: tuple[Domain, ...]) -> None:
    ours, continual = (
        pairs_of(Stream(StreamSchedule(domains, 1, 3, each), 16, LABELS)) for each in (scenario, Continual())
    )
    assert ours == continual


def test_sorted_labels_change_class_as_rarely_as_possible() -> None:
    stream = stream_of(Correlated(sampler="sorted"))
    for index in range(3):
        assert changes(labels_of(stream, index)) == CLASSES - 1
    together = stream_of(Correlated(sampler="sorted", mixed=True))
    assert changes(labels_of(together)) == CLASSES - 1
    assert changes(domains_of(together)) > 200  # the domains of a class are mixed


def test_a_lower_gamma_is_more_correlated() -> None:
    found = [changes(labels_of(stream_of(Correlated(gamma=gamma)))) for gamma in (0.01, 1e6)]
    assert found[0] < found[1]


def test_notes_sampler_is_refused_before_labels_are_read() -> None:
    (problem,) = Correlated(sampler="note").problems(5_000, 1_000, DOMAINS, 64)
    assert "10000 for 1000 classes" in problem
    assert Correlated(sampler="note", mixed=True).problems(5_000, 1_000, DOMAINS, 64) == []
    assert Correlated(sampler="rotta").problems(5_000, 1_000, DOMAINS, 64) == []
    assert Correlated(sampler="note").reduced(128) == {"sampler": "rotta"}


def test_lengths_of_imbalanced_streams() -> None:
    assert len(stream_of(Imbalanced()).pairs(1, 0)) == 2 * len(LABELS)
    assert len(stream_of(Imbalanced(draws=77)).pairs(1, 0)) == 77
    for sampler in ("sar", "delta", "gli", "zipf"):
        scenario = Imbalanced(sampler=sampler)  # type: ignore[arg-type]
        found = len(stream_of(scenario).pairs(1, 0))
        assert scenario.length(DOMAINS[:1], len(LABELS)) == pytest.approx(found, rel=0.15)


def test_ranks_vary_over_domains_or_not() -> None:
    for ranks in ("fixed", "varying"):
        stream = stream_of(Imbalanced(sampler="gli", ranks=ranks))  # type: ignore[arg-type]
        counts = {tuple(np.bincount(labels_of(stream, index), minlength=CLASSES)) for index in range(3)}
        assert (len(counts) == 1) == (ranks == "fixed")


@pytest.mark.parametrize(
    ("make", "params", "words"),
    [
        (Imbalanced, {"sampler": "gli", "ratio": 100}, "ratio: .* imbalance, ranks, correlation"),
        (Imbalanced, {"sampler": "zipf", "draws": 7}, "draws: the sampler zipf"),
        (Imbalanced, {"sampler": "sar", "tail": 0.5}, "tail: the sampler sar does .*: sampler, ratio, draws"),
        (Imbalanced, {"sampler": "sar", "correlation": "rotta"}, "correlation: the sampler sar"),
        (Imbalanced, {"sampler": "delta", "ranks": "varying"}, "ranks: the sampler delta"),
        (Imbalanced, {"sampler": "delta", "gamma": 0.5}, "gamma: the sampler delta with correlation none"),
        (Correlated, {"sampler": "sorted", "gamma": 0.2}, "gamma: .*Remove it.*: sampler, mixed"),
    ],
)
def test_parameters_without_effect_are_refused(make: Any, params: dict[str, Any], words: str) -> None:
    """Before: they changed the key and the seed of the orders, or a reader took them for the setting."""
    with pytest.raises(ValueError, match=words):
        make(**params)


def test_a_parameter_at_its_default_is_no_mistake() -> None:
    assert Correlated(sampler="sorted", gamma=0.1) == Correlated(sampler="sorted")
    assert Imbalanced(sampler="gli", ratio=500_000) == Imbalanced(sampler="gli")
    assert Imbalanced(sampler="gli", correlation="rotta", gamma=0.3).gamma == 0.3


@pytest.mark.parametrize("params", [{}, {"domain_stay": 1.0}, {"class_stay": "iid", "domain_stay": 1.0}])
def test_the_planned_length_of_a_chain_knows_its_imbalance(params: dict[str, Any]) -> None:
    labels = np.tile(np.arange(40), 30)
    scenario = Markov(domain_imbalance=2, class_imbalance=10, **params)
    found = len(Stream(StreamSchedule(DOMAINS, 1, 0, scenario), 16, labels).pairs(1, 0))
    planned = scenario.length(DOMAINS, len(labels))
    assert found <= 1.05 * planned < len(DOMAINS) * len(labels) / 2
    if params:  # shares: it does not end earlier
        assert found == pytest.approx(planned, rel=0.1)


def test_too_few_draws_are_refused() -> None:
    (problem,) = Imbalanced(draws=900).problems(50_000, 1_000, DOMAINS, 64)
    assert "1000 classes" in problem


def test_published_gradual_streams() -> None:
    cotta, all_nine = schedule_of(Gradual(first_from_the_top=True)), schedule_of(Gradual())
    assert (len(cotta), len(all_nine)) == (131, 135)
    first, second = IMAGENET_C_15[:2]
    assert cotta[:6] == [*((first, severity) for severity in (5, 4, 3, 2, 1)), (second, 1)]
    assert [severity for _, severity in all_nine[:9]] == [1, 2, 3, 4, 5, 4, 3, 2, 1]


def test_gradual_keeps_clean_images() -> None:
    domains = (Domain("clean", 0), Domain("fog", 2))
    assert schedule_of(Gradual(), domains) == [("clean", 0), ("fog", 1), ("fog", 2), ("fog", 1)]


def test_gradual_takes_one_way_to_give_severities() -> None:
    with pytest.raises(ValueError, match="Remove one"):
        Gradual(severities=[1, 2], first_from_the_top=True)
    with pytest.raises(ValueError, match="severities"):
        Gradual(severities=[6])


def test_markov_domains_that_stay_come_one_after_the_other() -> None:
    stream = stream_of(Markov(domain_stay=1.0))
    assert changes(domains_of(stream)) == len(DOMAINS) - 1
    found = np.bincount(domains_of(stream))
    assert found.tolist() == [len(LABELS)] * 3


def test_markov_without_correlation_is_iid() -> None:
    labels = np.tile(np.arange(10), 200)
    scenario = Markov(domain_stay="iid", class_stay="iid")
    stream = Stream(StreamSchedule(DOMAINS, 1, 0, scenario), 64, labels)
    for values, states in ((domains_of(stream), 3), (labels_of(stream), 10)):
        assert changes(values) / len(values) == pytest.approx(1 - 1 / states, abs=0.03)


def test_a_short_markov_stream_goes_on_until_every_domain_has_come() -> None:
    found = domains_of(stream_of(Markov(domain_stay=0.999, max_state=2)))
    assert set(found) == {0, 1, 2}
    assert (found == found[-1]).sum() == 1  # ends with the first image of the last domain


def test_markov_says_if_it_ends_before_all_domains() -> None:
    with pytest.raises(NoDraw, match="Raise max_state"):
        stream_of(Markov(domain_stay=0.9999, class_stay=1.0, max_state=2)).pairs(1, 0)


@pytest.mark.parametrize("params", [{"domain_stay": "iid"}, {"domain_stay": 1.0, "class_stay": 1.0}])
@pytest.mark.parametrize("imbalance", [5, 6, 7])
def test_markov_refuses_shares_that_leave_a_domain_without_images(
    imbalance: float, params: dict[str, Any]
) -> None:
    """The share of the last domain is 3 / imbalance: 0.6, 0.5 and 0.43, rounded."""
    scenario = Markov(domain_imbalance=imbalance, max_state=3, **params)
    problems = scenario.problems(len(LABELS), CLASSES, DOMAINS, 16)
    assert bool(problems) == (imbalance > 5)
    if problems:
        with pytest.raises(NoDraw, match="lower domain_stay or domain_imbalance"):
            stream_of(scenario).pairs(1, 0)
    else:
        assert set(domains_of(stream_of(scenario))) == {0, 1, 2}


def test_crossfade_starts_with_one_corruption_and_ends_with_the_other() -> None:
    names = [name for name, _ in schedule_of(Crossfade(), ALL_15[:2])]
    first, second = IMAGENET_C_15[:2]
    assert len(names) == 21
    assert (names[0], names[-1]) == (first, second)  # plain domains: their images are those of `continual`
    assert names[1] == f"{first}@4.75+{second}@0.25"
    severities = [[part.severity for part in parts_of(name)] for name in names[1:-1]]
    assert severities == [[5 - step / 4, step / 4] for step in range(1, 20)]


def test_crossfade_draws_a_part_of_the_images() -> None:
    stream = stream_of(Crossfade(steps=2, images=50))
    assert len(stream.schedule.segments(1)) == 5
    assert len(stream.pairs(1, 1)) == 50
    assert not np.array_equal(stream.pairs(1, 1), stream.pairs(1, 2))
    assert len(stream_of(Crossfade(steps=2)).pairs(1, 1)) == len(LABELS)


@pytest.mark.parametrize(
    ("domains", "words"),
    [(DOMAINS[:1], "two are needed"), ((Domain("clean", 0), *DOMAINS), "Remove it from stream.corruptions")],
)
def test_crossfade_needs_two_corruptions(domains: tuple[Domain, ...], words: str) -> None:
    (problem,) = Crossfade().problems(100, 10, domains, 64)
    assert words in problem


def test_images_of_a_class_that_is_missing_do_no_harm() -> None:
    labels = np.where(LABELS == 2, 900, LABELS)
    for scenario in SETTINGS:
        stream = Stream(StreamSchedule(DOMAINS, 1, 0, scenario), 16, labels)
        assert set(labels_of(stream)) <= {0, 1, 3, 900}


@pytest.mark.parametrize("params", [{"gamma": 0}, {"sampler": "other"}, {"mixed": 2}])
def test_values_out_of_range_are_refused(params: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(params))):
        Correlated(**params)


ALIGNED = [
    Continual(),
    Gradual(),
    *(Correlated(sampler=name) for name in ("sorted", "rotta", "delta")),
    *(Imbalanced(sampler=name) for name in ("sar", "delta", "gli", "zipf")),
]


@pytest.mark.parametrize("scenario", ALIGNED, ids=lambda each: getattr(each, "sampler", type(each).__name__))
def test_aligned_segments_have_the_same_images_in_the_same_order(scenario: Scenario) -> None:
    """As where the generators are seeded anew before each corruption (ROID, SAR, DELTA)."""
    for order, alike in (("aligned", True), ("shuffled", False)):
        stream = stream_of(scenario, order=order)
        first, second = (stream.pairs(1, index)[:, 1] for index in (0, len(stream.schedule.segments(1)) - 1))
        assert np.array_equal(first, second) == alike, order


def test_labels_are_correlated_anew_in_each_reshuffled_round() -> None:
    """PeTTA: the domains come back in the same order, with other runs of classes."""
    stream = stream_of(Correlated(gamma=0.1), order="reshuffled")
    assert stream.schedule.parts(1) == stream.schedule.parts(2)
    first, second = (stream.labels[stream.pairs(round, 0)[:, 1]] for round in (1, 2))
    assert not np.array_equal(first, second)
    assert sorted(first) == sorted(second)
