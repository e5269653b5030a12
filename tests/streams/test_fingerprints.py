"""What a fingerprint tells apart: the images of a segment, their domains, their order, and their batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tta_bench.api import Domain, SegmentImages, Stream, StreamSchedule
from tta_bench.streams.continual import Continual
from tta_bench.streams.correlated import Correlated
from tta_bench.streams.gradual import Gradual
from tta_bench.streams.mixed import Mixed

LABELS = np.tile(np.arange(4), 10)
MIXED = Mixed()
FOG, SNOW = Domain("fog", 3), Domain("snow", 3)


def prints(
    scenario: Any = MIXED, domains: Any = (FOG, SNOW), batch_size: int = 8, count: int = 40, **how: Any
) -> list[str]:
    """The fingerprints of all segments of the first round."""
    schedule = StreamSchedule(domains, 2, how.pop("seed", 0), scenario, **how)
    stream = Stream(schedule, batch_size, LABELS[:count])
    return [stream.fingerprint(1, i, "data") for i in range(len(schedule.segments(1)))]


@pytest.mark.parametrize(
    "changes",
    [
        {"batch_size": 7},
        {"batch_size": 80},
        {"count": 39},
        {"seed": 1},
        {"order": "reshuffled", "seed": 1},
        {"domains": (SNOW, FOG)},
        {"domains": (FOG, Domain("snow", 4))},
        {"domains": (FOG,)},
        {"scenario": Continual(), "straddle": True},
    ],
)
def test_other_streams_have_other_fingerprints(changes: dict[str, Any]) -> None:
    assert prints() == prints()
    assert prints(**changes) != prints()


def test_batches_across_borders_are_other_batches() -> None:
    """40 images of each of two domains in batches of 16: only without borders is no batch short."""
    cut, joined = prints(Continual(), batch_size=16), prints(Continual(), batch_size=16, straddle=True)
    assert len(cut) == 2
    assert len(joined) == 1
    assert not set(cut) & set(joined)


def test_a_severity_is_another_domain() -> None:
    found = prints(Gradual(), domains=(FOG,))
    assert len(found) == 5
    assert len(set(found)) == 3, "severities 1, 2, 3, 2, 1, each with its images in one order"


# Of fog and snow in both rounds, as they were before there were scenarios.
BEFORE = {
    "shuffled": ["f00366980bb61448", "a3b8a5e7a0f20c7e"] * 2,
    "reshuffled": ["417aafc11d653d17", "d385e2eacf9c15ae", "1d9ec773e7392d1c", "3a4c662bb7110632"],
    "sequential": ["223b5a523e877226", "c016eed9c2a9e5df"] * 2,
}


@pytest.mark.parametrize("order", BEFORE)
def test_continual_is_the_stream_of_old_results(order: str) -> None:
    stream = Stream(StreamSchedule((FOG, SNOW), 2, 0, Continual(), order), 8, LABELS)
    found = [stream.fingerprint(round, index, "data") for round in (1, 2) for index in (0, 1)]
    assert found == BEFORE[order]


# Segments of three rounds that have the batches of an earlier one.
AGAIN = [
    (Continual(), {}, 4),
    (Continual(), {"domain_order": "per-round"}, 4),
    (Continual(), {"order": "reshuffled"}, 0),
    (Continual(), {"domain_order": "per-round", "straddle": True}, 1),
    (MIXED, {}, 2),
    (Gradual(), {"domain_order": "per-round"}, 24),
    (Gradual(), {"order": "reshuffled"}, 12),
    (Gradual(), {"order": "aligned"}, 24),
    (Correlated(), {"domain_order": "per-round"}, 4),
]


@pytest.mark.parametrize(("scenario", "how", "again"), AGAIN)
def test_content_tells_before_labels_are_read_which_fingerprints_are_equal(
    scenario: Any, how: dict[str, Any], again: int
) -> None:
    schedule = StreamSchedule((FOG, SNOW), 3, 0, scenario, **how)
    stream = Stream(schedule, 8, LABELS)
    places = [(round, i) for round in (1, 2, 3) for i in range(len(schedule.segments(1)))]
    content = [schedule.content(*place) for place in places]
    found = [stream.fingerprint(*place, "data") for place in places]
    assert [content.index(each) for each in content] == [found.index(each) for each in found]
    assert len(places) - len(set(found)) == again


@pytest.mark.parametrize("params", [{}, {"severities": [1, 2, 1]}])
def test_visits_that_are_arranged_at_random_have_other_batches(params: dict[str, Any]) -> None:
    class Visiting(Gradual):
        def arrange(self, images: SegmentImages) -> np.ndarray:
            return images.rng.permutation(images.one_after_the_other())

    schedule = StreamSchedule((FOG,), 1, 0, Visiting(**params))
    stream, count = Stream(schedule, 8, LABELS), len(schedule.segments(1))
    assert len({schedule.content(1, i) for i in range(count)}) == count
    assert len({stream.fingerprint(1, i, "data") for i in range(count)}) == count
