"""Checks of scenarios, on the labels of a small data set and without any image."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tta_bench.api import Scenario
from tta_bench.config.parameters import check_params
from tta_bench.testing.small_streams import BATCH, CLASSES, DOMAINS, LABELS, pairs_of, stream_of


def fits_a_small_stream(scenario: Scenario) -> None:
    """accepts 240 images in 4 classes per domain, and gives every problem as a sentence."""
    assert scenario.problems(len(LABELS), CLASSES, DOMAINS, BATCH) == [], "refuses a stream that must work"
    for count in (1, 10, 50_000):
        found = scenario.problems(count, 1000, DOMAINS, 64)
        assert all(isinstance(text, str) and text.endswith(".") for text in found), f"no sentences: {found}"


def plans_equal_rounds(scenario: Scenario) -> None:
    """plans the same number of segments in every round, and domains in each of them."""
    for order in ("shuffled", "reshuffled"):
        schedule = stream_of(scenario, order=order).schedule
        counts = {len(schedule.segments(round)) for round in range(1, 6)}
        assert len(counts) == 1, f"the numbers of segments of five rounds are {sorted(counts)}"
        assert all(segment.visits for segment in schedule.segments(1)), "a segment has no domain"


def gives_every_image_once(scenario: Scenario) -> None:
    """gives every image of every visited domain once, unless it declares `resamples`."""
    stream = stream_of(scenario)
    for index, segment in enumerate(stream.schedule.segments(1)):
        found = stream.pairs(1, index)  # raises if images are missing, repeat or do not exist
        planned = scenario.length(segment.domains, stream.count)
        assert scenario.resamples or planned == len(found), f"length() is {planned}, and {len(found)} came"
        assert planned > 0, "length() is not positive"


def depends_on_the_seed_alone(scenario: Scenario) -> None:
    """same seed, same stream; another seed, another stream; global generators are not used."""
    before = np.random.get_state()[1].copy()  # type: ignore[index, union-attr]
    first, again, other = (pairs_of(stream_of(scenario, seed)) for seed in (1, 1, 2))
    assert first == again, "two streams of one seed differ"
    assert first != other, "the streams of two seeds are equal"
    assert np.array_equal(before, np.random.get_state()[1]), "NumPy's global generator was used"  # type: ignore[index]


def repeats_its_rounds(scenario: Scenario) -> None:
    """every round is equal, unless `order: reshuffled`, where rounds differ."""
    assert pairs_of(stream_of(scenario)) == pairs_of(stream_of(scenario), 2), "two rounds differ"
    again = stream_of(scenario, order="reshuffled")
    assert pairs_of(again) != pairs_of(again, 2), "two reshuffled rounds are equal"


def uses_labels_as_declared(scenario: Scenario) -> None:
    """the order depends on labels only if it declares `uses_labels`."""
    if scenario.uses_labels:
        return
    stream = stream_of(scenario)
    relabelled = replace(stream, labels=np.sort(LABELS)[::-1].copy())
    assert pairs_of(stream) == pairs_of(relabelled), "with other labels the order is another"


def leaves_what_it_gets(scenario: Scenario) -> None:
    """does not change the labels in place."""
    labels = LABELS.copy()
    pairs_of(replace(stream_of(scenario), labels=labels))
    assert np.array_equal(labels, LABELS), "the labels were changed"


def straddling_changes_the_cuts_alone(scenario: Scenario) -> None:
    """with `straddle`, the same images come in the same order, in one segment."""
    parts, joined = pairs_of(stream_of(scenario)), pairs_of(stream_of(scenario, straddle=True))
    assert [image for part in parts for image in part] == joined[0]
    assert len(joined) == 1


def is_reduced_to_valid_parameters(scenario: Scenario) -> None:
    """`reduced` names its own parameters, with values in their ranges."""
    for count in (16, 64, 2000):
        _, problems = check_params(type(scenario), vars(scenario) | scenario.reduced(count), "reduced()")
        assert not problems, "; ".join(problem.text for problem in problems)
